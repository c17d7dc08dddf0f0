#include "config/check_parts.hpp"
#include "config/family.hpp"
#include "config/fp8_recipe.hpp"
#include "config/keys.hpp"

namespace forge {

namespace {

void check_heads_of_linear(const ModelDeck& m, Report& report) {
  for (const auto& [key, value] : {std::pair{"model.linear_key_heads", m.linear_key_heads},
                                   {"model.linear_value_heads", m.linear_value_heads},
                                   {"model.linear_key_dim", m.linear_key_dim},
                                   {"model.linear_value_dim", m.linear_value_dim}})
    if (value == 0)
      report.add(equation(key, value) + " with " +
                 equation("model.full_attention_interval", m.full_attention_interval) +
                 "; legal: at least 1, or full_attention_interval: 0");
  if (m.linear_key_heads > 0 && m.linear_value_heads % m.linear_key_heads != 0)
    report.add(equation("model.linear_value_heads", m.linear_value_heads) + " is no multiple of " +
               equation("model.linear_key_heads", m.linear_key_heads) +
               "; nearest legal: " + nearest_multiples(m.linear_value_heads, m.linear_key_heads));
}

}  // namespace

void check_linear(const Deck& deck, Report& report) {
  const ModelDeck& m = deck.model;
  const auto refuse_gate = [&](bool wrong, const std::string& what, const std::string& legal) {
    if (wrong && m.attention_output_gate)
      report.add("model.attention_output_gate = true with " + what + ": not available; legal: " + legal);
  };
  refuse_gate(m.attention == AttentionKind::mla, "model.attention = mla", "standard");
  refuse_gate(*tensor_names(m.family).qkv != 0, "model.family = " + std::string(name_of(m.family)), "another family");
  refuse_gate(deck.optimizer.qk_clip > 0, "optimizer.qk_clip", "0");
  const std::string begin = equation("model.full_attention_interval", m.full_attention_interval);
  if (m.full_attention_interval == 0) {
    for (const Key& key : all_keys())
      if (key.section == "model" && std::string_view(key.name).starts_with("linear_") && !is_default(key, deck))
        report.add(key.qualified() + " = " + value_text(key, deck) +
                   " has no effect without model.full_attention_interval; legal: " + default_text(key));
    return;
  }
  if (m.full_attention_interval == 1 || m.full_attention_interval > m.layers)
    report.add(begin +
               (m.full_attention_interval == 1 ? " leaves no layer gated DeltaNet" : ": no layer has attention") +
               "; legal: 0, or 2 to " + equation("model.layers", m.layers));
  check_heads_of_linear(m, report);
  const auto refuse = [&](bool wrong, const std::string& what, const std::string& legal) {
    if (wrong) report.add(begin + " with " + what + ": not available; legal: " + legal);
  };
  refuse(m.attention == AttentionKind::mla, "model.attention = mla", "standard");
  refuse(m.family == Family::gpt2, "model.family = gpt2", "another family");
  // The projections of DeltaNet are six tensors that tp splits, of which blocks would have to keep account.
  const Fp8RecipeRow& recipe = properties_of(deck.train.fp8_recipe);
  refuse(deck.train.precision == PrecisionName::fp8 && recipe.weights == WeightScale::block,
         "train.fp8_recipe = " + std::string(recipe.word), "current | row | delayed");
  refuse(deck.optimizer.qk_clip > 0, "optimizer.qk_clip", "0");
}

}  // namespace forge
