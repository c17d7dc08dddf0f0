#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/fp8_recipe.hpp"

namespace forge {

struct Key;

// The deck's choices for fp8, for those who plan and run products.
struct RoundingOptions {
  bool on = false;
  Fp8Recipe recipe{};
  bool exact = false;       // scales that aren't powers of two
  bool experts = false;     // the experts' products, too
  bool transposed = false;  // weight gradients of `block`, too
  std::int64_t first_block = 0, end_block = 0;
  std::int64_t kv_copies = 1;  // tp neighbours with the same key and value heads
  std::int64_t history = 0;    // steps whose largest magnitudes give the scales; 0: the numbers at hand give them
  bool dispatch = false;       // rows go to routed experts as codes (train.fp8_dispatch)
  // Blocks before these have weights, or experts' weights, that ZeRO-3 gathers as codes (train.fp8_gather).
  std::int64_t coded_end = 0, coded_experts_end = 0;
  // cuBLASLt multiplies the codes of operands where it takes them, of experts' none; whether the run's device does
  // isn't known here (multiplies_codes() of fp8/codes.hpp).
  bool codes = false;

  const Fp8RecipeRow& properties() const { return properties_of(recipe); }
  // Whether largest magnitudes that a product takes are read again (fp8/saved_amaxes.hpp).
  bool keeps_amaxes() const { return on && properties().rows == RowScale::sequence && properties().has_one_code(); }
  bool has_history() const { return properties().has_history(); }
  bool has_block(std::int64_t layer) const { return on && layer >= first_block && layer < end_block; }
  bool has_coded_block(std::int64_t layer) const { return has_block(layer) && layer < coded_end; }
  bool has_coded_experts(std::int64_t layer) const { return has_block(layer) && layer < coded_experts_end; }
};
RoundingOptions rounding_options(const Deck& deck);
// "train.fp8_recipe=current", …: the keys of rounding at their defaults, which alone are legal with a precision that
// rounds nothing; empty with fp8.
std::vector<std::string> settings_without_rounding(const std::string& precision);
// The keys of the arithmetic of products: the precision, and those that say how it rounds.
bool is_of_rounding(const Key& key);
bool is_of_products(const Key& key);
// Whether the arithmetic of the deck's products follows from the key.
bool changes_products(const Key& key, const Deck& deck);

}  // namespace forge
