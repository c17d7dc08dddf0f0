#include "config/kernel_choice.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "config/deck.hpp"
#include "config/keys.hpp"
#include "config/text.hpp"
#include "core/faults.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// Weights of an expert's matrix. An H200 multiplied matrices of 1.6 million in 56 % of the library's time in one
// launch, of 59 million in as much or a tenth more (docs/notes/kernels.md, "Experts' products in one launch").
constexpr std::int64_t large_matrix = 1 << 24;

// The first one where the text is empty.
template <class Choice, class Words>
Choice choice_of(const char* variable, const char* text, const Words& words) {
  const std::string_view word = text ? text : "";
  if (word.empty()) return Choice{};
  const auto found = std::find(words.begin(), words.end(), word);
  if (found != words.end()) return static_cast<Choice>(found - words.begin());
  std::string legal;
  for (const char* each : words) legal += (legal.empty() ? "" : ", ") + std::string(each);
  throw BadInput(std::string(variable) + " = " + shown(word) + "; legal: " + legal);
}

void check_attention(const Deck& deck, AttentionKernel asked, Report& report) {
  if (!on_tensor_cores(asked)) return;
  const std::string text = asked_text(asked);
  if (!deck.train.computes_in_bf16())
    report.add(text +
               " without train.precision = bf16, which alone they compute in; legal: automatic, cuda_cores, or "
               "precision bf16, or fp8 with FORGE_FP8_CARRIER = bf16");
  if (deck.model.attention_soft_cap > 0)
    report.add(text + " with model.attention_soft_cap = " + value_text(*find_key("model", "attention_soft_cap"), deck) +
               ", which these kernels don't have; legal: automatic, cuda_cores, or attention_soft_cap 0");
}

void check_grouped(const Deck& deck, GroupedProducts asked, Report& report) {
  if (asked == GroupedProducts::automatic || asked == GroupedProducts::library) return;
  const std::string text = asked_text(asked);
  if (!deck.train.computes_in_bf16())
    report.add(text +
               " without train.precision = bf16, which alone they compute in; legal: automatic, library, or "
               "precision bf16, or fp8 with FORGE_FP8_CARRIER = bf16");
  if (deck.model.experts == 0)
    report.add(text + " without model.experts, whose products they are; legal: automatic or library");
  if (asked == GroupedProducts::cutlass && deck.machine.workspace_mib == 0)
    report.add(text +
               " with machine.workspace_mib = 0: descriptions of groups stand there; legal: workspace_mib 1 or more");
}

}  // namespace

std::string asked_text(AttentionKernel asked) {
  return std::string("FORGE_ATTENTION = ") + attention_kernel_words[to_size(asked)];
}

AttentionKernel chosen_attention(const Deck& deck, AttentionKernel asked) {
  if (asked != AttentionKernel::automatic) return asked;
  const bool has_them = deck.train.computes_in_bf16() && deck.model.attention_soft_cap == 0;
  return has_them ? AttentionKernel::tensor_cores : AttentionKernel::cuda_cores;
}

std::string asked_text(GroupedProducts asked) {
  return std::string("FORGE_GROUPED = ") + grouped_products_words[to_size(asked)];
}

GroupedProducts chosen_grouped_products(const Deck& deck, GroupedProducts asked) {
  if (asked != GroupedProducts::automatic) return asked;
  const bool has_them = deck.train.computes_in_bf16() && deck.model.experts > 0;
  const bool small = deck.model.width * deck.model.expert_ffn < large_matrix;
  return has_them && small ? GroupedProducts::tensor_cores : GroupedProducts::library;
}

bool takes_cutlass(const Deck& deck, GroupedProducts asked) {
  const bool automatic = asked == GroupedProducts::automatic;
  return asked == GroupedProducts::cutlass || (automatic && deck.machine.workspace_mib > 0 &&
                                               chosen_grouped_products(deck, asked) != GroupedProducts::library);
}

KernelChoice kernel_choice(const char* attention, const char* grouped) {
  return {choice_of<AttentionKernel>("FORGE_ATTENTION", attention, attention_kernel_words),
          choice_of<GroupedProducts>("FORGE_GROUPED", grouped, grouped_products_words)};
}

const KernelChoice& asked_kernels() {
  static const KernelChoice asked = kernel_choice(std::getenv("FORGE_ATTENTION"), std::getenv("FORGE_GROUPED"));
  return asked;
}

Fp8Carrier asked_fp8_carrier() {
  constexpr const char* variable = "FORGE_FP8_CARRIER";
  return choice_of<Fp8Carrier>(variable, setting_of_tests(variable), std::array{"bf16", "fp64"});
}

void check_kernels(const Deck& deck, const KernelChoice& asked, Report& report) {
  check_attention(deck, asked.attention, report);
  check_grouped(deck, asked.grouped, report);
}

}  // namespace forge
