#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../data/files.hpp"
#include "config/deck.hpp"
#include "core/random.hpp"

namespace forge::test {

// Files of pairs of texts, and decks of tests that train on them.

inline constexpr std::int32_t end_token = 3;
inline constexpr std::int64_t pairs_of_file = 40, most_tokens = 8;  // of a text

struct PairFiles {
  std::string tokens, mask;
};

// Texts of 2 to most_tokens tokens, of which the last one ends the document and is a label. The prompts, which are no
// labels, of a pair's two texts differ, too.
inline PairFiles write_pairs(const Directory& dir, std::uint64_t key) {
  std::vector<std::uint16_t> tokens;
  std::vector<std::uint8_t> mask;
  for (std::uint64_t text = 0; text < 2 * pairs_of_file; ++text) {
    const std::uint64_t of_text = mix(key, text), length = 2 + of_text % (most_tokens - 1),
                        prompt = of_text / 64 % length;
    for (std::uint64_t i = 0; i < length; ++i) {
      const auto drawn = static_cast<std::uint16_t>(mix(of_text, i) % 27 + 4);
      tokens.push_back(i + 1 == length ? static_cast<std::uint16_t>(end_token) : drawn);
      mask.push_back(i >= prompt && (i + 1 == length || drawn % 5 != 0));
    }
  }
  const std::string name = "pairs_" + std::to_string(key);
  write_tokens(dir / (name + ".bin"), tokens);
  write_text(dir / (name + ".npy"), npy(mask, "|u1"));
  return {dir / (name + ".bin"), dir / (name + ".npy")};
}

inline Deck with_pairs(Deck deck, const Directory& dir) {
  const PairFiles train = write_pairs(dir, 1), held_out = write_pairs(dir, 2);
  deck.preference.name = PreferenceName::dpo;
  deck.preference.beta = 0.4;
  deck.preference.label_smoothing = 0.1;
  deck.model.mtp_depth = 0;
  deck.train.z_loss_coefficient = 0;
  deck.data.files = {train.tokens};
  deck.data.mask_files = {train.mask};
  deck.data.document_end_token = end_token;
  deck.data.packing = Packing::pairs;
  deck.data.packing_directory = dir / "plans";
  deck.data.positions = PositionOrigin::document;
  if (!deck.data.validation_files.empty()) {
    deck.data.validation_files = {held_out.tokens};
    deck.data.validation_mask_files = {held_out.mask};
  }
  return deck;
}

}  // namespace forge::test
