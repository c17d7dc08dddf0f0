#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "core/category.hpp"
#include "core/to_size.hpp"
#include "layout/unit_buffers.hpp"
#include "model/buffers.hpp"
#include "plan/rank_share.hpp"

namespace forge {

// Memory of one rank, by category, at the moment of its peak.
struct MemoryPlan {
  std::array<std::size_t, category_count> bytes{};
  std::string peak;  // the phase of the step in which the peak is reached

  std::size_t& of(Category c) { return bytes[to_size(c)]; }
  std::size_t of(Category c) const { return bytes[to_size(c)]; }
  std::size_t total() const;
};

// Memory of the whole run, but for slots of microbatches: units and pools, buffers of the run, libraries' workspace,
// and the workspace of rounded products.
MemoryPlan resident_memory(const BufferContext& c, const RankShare& share, RunKind kind, std::size_t library_bytes);

}  // namespace forge
