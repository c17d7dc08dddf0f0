#include "config/kernel_choice.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "config/deck.hpp"
#include "config/keys.hpp"
#include "config/text.hpp"
#include "core/faults.hpp"

namespace forge {

namespace {

// The first one where the text is empty.
template <class Choice, std::size_t n>
Choice choice_of(const char* variable, const char* text, const std::array<const char*, n>& words) {
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
