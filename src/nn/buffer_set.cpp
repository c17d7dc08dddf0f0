#include "nn/buffer_set.hpp"

namespace forge {

void BufferSet::add(const BufferList& list, Arena& arena, Category category) {
  for (const auto& buffer : list)
    entries_[static_cast<std::size_t>(buffer.id)] = {arena.allocate(buffer.bytes(), category), buffer.extents,
                                                     buffer.dtype};
}

void BufferSet::merge(const BufferSet& other) {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (other.entries_[i].data) entries_[i] = other.entries_[i];
}

}  // namespace forge
