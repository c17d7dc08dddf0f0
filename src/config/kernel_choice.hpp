#pragma once

#include "config/attention_kernel.hpp"
#include "config/grouped_products.hpp"
#include "config/report.hpp"

namespace forge {

struct Deck;
enum class Fp8Carrier;

// Kernels of a run on a GPU that a test or a benchmark asks for. No key of a deck names them: what is automatic comes
// to the fastest one that is legal and there.
struct KernelChoice {
  AttentionKernel attention = AttentionKernel::automatic;
  GroupedProducts grouped = GroupedProducts::automatic;
};

// By the words that FORGE_ATTENTION and FORGE_GROUPED have; nullptr or "": automatic. Throws BadInput where there is no
// such word.
KernelChoice kernel_choice(const char* attention, const char* grouped);
// By the environment, which is read once.
const KernelChoice& asked_kernels();
// The type of all that FP8 doesn't round: bf16, or in builds with tests the word that FORGE_FP8_CARRIER has. Throws
// BadInput where there is no such word.
Fp8Carrier asked_fp8_carrier();

// Adds what a deck has that a kernel that is asked for by name doesn't compute.
void check_kernels(const Deck& deck, const KernelChoice& asked, Report& report);

}  // namespace forge
