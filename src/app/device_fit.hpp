#pragma once

#include <string>

#include "comm/world.hpp"
#include "plan/rank_memory.hpp"

namespace forge {

// A GPU for `forge show --gpu`, what the driver reports of its memory, and its compute capability; 0: not known.
struct AskedGpu {
  std::string name;  // as it was asked for
  std::size_t mib;
  int capability = 0;
};
// Of a GPU's name ("h100-80"), a machine of inputs/machines ("h100_8") or its file, or a size ("40GiB", "40GB" as GPUs
// are sold). Throws BadInput naming the legal ones.
AskedGpu gpu_of(const std::string& name);

// "GPUs of 80 GB or more, one a rank: …": the smallest of those on sale that have so much.
std::string fitting_gpus(const RankMemory& memory);
// "nearest change that fits: train.recompute=full (1.2 GiB)", found by planning each, for ranks that may have `limit`
// bytes, of a GPU or of a node's memory.
enum class FitOn { gpu, node };
std::string nearest_change(const RunSetup& setup, RunKind kind, std::size_t limit, FitOn on);
// Whether the deck fits on such GPUs, and the nearest change that makes it fit: lines for `forge show`.
std::string fit_text(const RunSetup& setup, const AskedGpu& gpu);
// Throws BadInput where the deck asks for kernels that the device of this build hasn't.
void refuse_what_the_device_lacks(const RunSetup& setup);
// All ranks: throws BadInput on every one where some rank's GPU hasn't the free memory, with the nearest change that
// fits. Nothing has been allocated yet.
void refuse_what_does_not_fit(const RunSetup& setup, RunKind kind, const World& world);

}  // namespace forge
