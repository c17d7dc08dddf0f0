#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/types.hpp"

namespace forge {

// A buffer cut into nearly equal parts, one a rank.
struct Cut {
  std::int64_t count;
  int parts;

  std::int64_t begin(int part) const {
    const std::int64_t longer = count % parts;  // the first ones have one element more
    return count / parts * part + (part < longer ? part : longer);
  }
  std::int64_t size(int part) const { return begin(part + 1) - begin(part); }
};

// to += from on the host; bf16 is added in fp32 and rounded. Types that ranks add: fp64, fp32, bf16, int32, int64.
void add_on_host(std::byte* to, const std::byte* from, std::int64_t count, DType type);

// to ← Σ parts, in their order, each of which may be `to` itself; bf16 is summed in fp32 and rounded once.
void sum_on_host(std::byte* to, std::span<const std::byte* const> parts, std::int64_t count, DType type);

// to ← the largest of the parts' elements, each part perhaps `to` itself. fp64 and fp32.
void max_on_host(std::byte* to, std::span<const std::byte* const> parts, std::int64_t count, DType type);

}  // namespace forge
