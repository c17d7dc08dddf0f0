#pragma once

#include <cstdint>

#include "core/view.hpp"

namespace forge {

// How a token is drawn from softmax(logits / temperature), cut to the top_k most likely (0: all) and of these to the
// smallest set whose probability reaches top_p. temperature 0: the most likely one. uniform: the draw, in (0, 1).
struct TokenChoice {
  double temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 1, uniform = 0.5;
};

inline constexpr std::int64_t choice_bins = 2048, choice_chunk = 4096;
constexpr std::int64_t choice_chunks(std::int64_t vocabulary) {
  return (vocabulary + choice_chunk - 1) / choice_chunk;
}

// The workspace of choose_token, for V logits.
template <class A>
struct ChoiceWorkspace {
  View<A, 1> largest;             // (choice_chunks(V))
  View<std::int64_t, 1> weights;  // (V)
  View<std::int32_t, 2> tokens;   // (2, V): the bin of each, and the tokens of a bin
  View<std::int64_t, 2> bins;     // (2, choice_bins): weights and numbers of their tokens
  View<std::int64_t, 1> found;    // (2)
};

}  // namespace forge
