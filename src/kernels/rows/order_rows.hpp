#pragma once

#include <cstdint>

#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// Rows of all context-parallel ranks, of which rank c has chunks c and 2 ranks − 1 − c of the 2 ranks chunks of each
// sequence (zigzag_positions of layout/row_share.hpp): from(ranks, sequences, T / ranks) → to(sequences, T), in the
// order of positions. The pitches may differ.
template <class T>
void rows_by_position(Stream&, std::int64_t ranks, std::int64_t sequences, View<const T, 2> from, View<T, 2> to);
// … and back.
template <class T>
void rows_by_rank(Stream&, std::int64_t ranks, std::int64_t sequences, View<const T, 2> from, View<T, 2> to);

}  // namespace forge
