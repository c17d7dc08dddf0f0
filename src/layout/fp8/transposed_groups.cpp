#include <string>

#include "config/check_parts.hpp"
#include "fp8/scaled_product.hpp"
#include "layout/check_layout.hpp"

namespace forge {

void check_transposed_groups(const Deck& deck, Report& report) {
  const TrainDeck& t = deck.train;
  const std::int64_t unit = 2 * deck.mesh.cp * scale_width;
  if (!t.fp8_transposed || deck.mesh.cp == 1 || t.sequence_tokens % unit == 0) return;
  report.add("", equation("train.sequence_tokens", t.sequence_tokens) + " is no multiple of 2 x " +
                     equation("mesh.cp", deck.mesh.cp) + " x " + std::to_string(scale_width) +
                     " with train.fp8_transposed = true (128 tokens that share a scale are in one of a rank's two "
                     "blocks of a sequence); nearest legal sequence_tokens: " +
                     nearest_multiples(t.sequence_tokens, unit) + "; or cp 1, or fp8_transposed: false");
}

}  // namespace forge
