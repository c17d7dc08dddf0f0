#pragma once

#include <cstddef>
#include <vector>

#include "layout/boxes.hpp"

namespace forge {

// Copies `part` of a tensor from the row-major memory of the box `from` to the memory of the box `to`, which both
// contain it; `size`: bytes of an element.
void copy_part(const Box& part, const Box& from, const std::byte* source, const Box& to, std::byte* target,
               std::size_t size);

bool overlap(const Box& a, const Box& b);  // of one number of dimensions

// The smallest box around both.
Box enclosing(const Box& a, const Box& b);

// The boxes of the whole tensor that a range of a box's own row-major order makes up, in that order.
std::vector<Box> boxes_within(const Box& box, const Range& range);

// A box cut along its last dimension wherever the whole tensor's index there is a multiple of `strip`; 0: not cut.
std::vector<Box> strips_of(const Box& box, std::int64_t strip);

}  // namespace forge
