#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/to_size.hpp"

namespace forge {

// A label that takes no part in the loss.
inline constexpr std::int32_t masked_label = -1;

// T tokens in a row, as a model sees them.
struct Sample {
  explicit Sample(std::int64_t T)
      : tokens(to_size(T + 1)),
        labels(to_size(T)),
        documents(to_size(T)),
        positions(to_size(T)),
        kept(to_size(T + 1)),
        filled(T) {}

  std::vector<std::int32_t> tokens;     // (T + 1) inputs; the last one is no input, but may be the last label
  std::vector<std::int32_t> labels;     // (T) the following tokens; masked_label: no loss
  std::vector<std::int32_t> documents;  // (T) ascending, from 0
  std::vector<std::int32_t> positions;  // (T) from 0 in each document
  std::vector<std::uint8_t> kept;       // (T + 1) scratch: whether a token may be a label
  // For a pair of texts, documents 0 and 1: log-probabilities by the reference (TokenSet::set_references), or NaN.
  std::array<double, 2> references{no_reference, no_reference};
  static constexpr double no_reference = std::numeric_limits<double>::quiet_NaN();
  std::int64_t filled;  // the first so many tokens are documents'; behind them stands filler
};

// Samples that are read as pieces of so many tokens: documents end with them, positions begin with them.
struct SamplePieces {
  std::int64_t tokens = 0;    // of a piece, a divisor of T
  bool at_documents = false;  // positions begin with documents, too

  void cut(Sample& sample) const {
    std::int32_t pieces = 0;
    for (std::size_t t = 0; t < sample.labels.size(); ++t) {
      const auto place = static_cast<std::int32_t>(static_cast<std::int64_t>(t) % tokens);
      pieces += t > 0 && place == 0;
      sample.documents[t] += pieces;
      sample.positions[t] = at_documents ? std::min(sample.positions[t], place) : place;
    }
  }
};

}  // namespace forge
