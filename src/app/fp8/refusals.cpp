#include "app/device_fit.hpp"
#include "app/trained_model.hpp"
#include "app/verb_help.hpp"
#include "config/rounding_options.hpp"
#include "core/error.hpp"
#include "kernels/fp8/fp8_operand.hpp"

namespace forge {

void refuse_scales(const RunSetup& setup) {
  if (!setup.buffers.rounding.codes) return;
  const std::string refusal = refusal_of_scales(setup.deck.train.fp8_recipe, cublas_version());
  if (!refusal.empty()) throw BadInput(refusal);
}

void refuse_scales_of_sequences(const CommandLine& line, const Deck& deck) {
  const RoundingOptions rounding = rounding_options(deck);
  const Fp8RecipeRow& recipe = rounding.properties();
  if (!rounding.on || recipe.by_token()) return;
  throw BadInput(verb_of(line) + ": train.fp8_recipe = " + std::string(recipe.word) +
                 (recipe.has_history() ? " has scales of a training's steps, which are not read here"
                                       : " has scales of whole sequences, so that a token's numbers would depend on "
                                         "others behind it") +
                 (deck.model.full_attention_interval > 0 ? "; legal: row" : "; legal: row | block") +
                 " (--set train.fp8_recipe=row), or --precision bf16");
}

void refuse_missing_history(const Deck& deck) {
  if (rounding_options(deck).history == 0 || !deck.checkpoint.model_from.empty()) return;
  throw BadInput(
      "forge evaluate: train.fp8_recipe = delayed has its scales from the steps of a training, which only its "
      "checkpoints hold; legal: --checkpoint DIR, another recipe (--set train.fp8_recipe=current), or --precision "
      "bf16");
}

}  // namespace forge
