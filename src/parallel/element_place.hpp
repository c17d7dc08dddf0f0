#pragma once

#include "kernels/rows/rounding.hpp"
#include "layout/local_units.hpp"

namespace forge {

// The place of elements of a unit's flat buffer from `begin` on, up to the next piece; `use`: the purpose of the
// numbers drawn for it.
inline ElementPlace place_of(const LocalUnit& unit, std::int64_t begin, std::uint64_t seed,
                             RoundingUse use = RoundingUse::update) {
  std::size_t p = 0;
  while (p + 1 < unit.pieces.size() && unit.pieces[p + 1].offset <= begin) ++p;
  const LocalPiece& piece = unit.pieces[p];
  const Parameter& parameter = unit.parameters[piece.parameter];
  ElementPlace place{rounding_key(seed, parameter.name, use), flat_index(parameter.shape, piece.box.offset),
                     begin - piece.offset};
  if (parameter.shape.size() != 2) return place;
  place.width = piece.box.extent[1];
  place.gap = parameter.shape[1] - place.width;
  return place;
}

}  // namespace forge
