#pragma once

#include <cstdint>

#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// to.row(places[r]) = from.row(r); −1: the row goes nowhere. No two rows have one place.
template <class T>
void place_rows(Stream& stream, View<const T, 2> from, View<const std::int32_t, 1> places, View<T, 2> to);

// to.row(i) = from.row(wanted[i] − first), where `from` has that row; else to.row(i) stays.
template <class T>
void take_rows(Stream& stream, View<const T, 2> from, std::int64_t first, View<const std::int32_t, 1> wanted,
               View<T, 2> to);

}  // namespace forge
