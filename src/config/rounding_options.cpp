#include "config/rounding_options.hpp"

#include <algorithm>

#include "config/keys.hpp"

namespace forge {

RoundingOptions rounding_options(const Deck& deck) {
  const TrainDeck& t = deck.train;
  const ModelDeck& m = deck.model;
  const std::int64_t keys = m.kv_heads > 0 ? m.kv_heads : m.heads;
  const std::int64_t copies = keys > 0 ? std::max<std::int64_t>(deck.mesh.tp / keys, 1) : 1;
  if (t.precision != PrecisionName::fp8) {
    RoundingOptions none;
    none.kv_copies = copies;
    return none;
  }
  return {true,
          t.fp8_recipe,
          t.fp8_scale == Fp8Scale::exact,
          t.fp8_experts,
          t.fp8_transposed,
          t.fp8_first_layers_bf16,
          m.layers + m.mtp_depth - t.fp8_last_layers_bf16,
          copies,
          properties_of(t.fp8_recipe).has_history() ? t.fp8_history : 0,
          t.fp8_dispatch};
}

std::vector<std::string> settings_without_rounding(const std::string& precision) {
  std::vector<std::string> settings;
  if (precision == "fp8") return settings;
  for (const Key& key : all_keys())
    if (is_of_rounding(key)) settings.push_back(key.qualified() + "=" + default_text(key));
  return settings;
}

bool is_of_rounding(const Key& key) {
  return key.section == "train" && key.name.starts_with("fp8_");
}

bool is_of_products(const Key& key) {
  return key.qualified() == "train.precision" || is_of_rounding(key);
}

bool changes_products(const Key& key, const Deck& deck) {
  return is_of_products(key) && (deck.train.precision == PrecisionName::fp8 || !is_of_rounding(key));
}

}  // namespace forge
