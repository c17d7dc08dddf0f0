#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/arena.hpp"
#include "layout/replicas.hpp"
#include "parallel/storage.hpp"

namespace forge {

// Numbers of this rank that other ranks hold alike, one behind the other in the device's memory.
struct ReplicaPart {
  std::string name;  // "layers.3.attention.q, first_moment"
  std::byte* data;
  std::int64_t count;
  DType type;

  std::size_t bytes() const { return to_size(count) * size_of(type); }
};

// The weights and optimizer states of the storage that the ranks of a group hold alike, in the same order on each; a
// part for each buffer of a unit or, `by_tensor`, for each tensor in it.
template <class T>
std::vector<ReplicaPart> replica_parts(const ParameterStorage<T>& storage, ReplicaKind kind, bool by_tensor);

// A checksum of each part (kernels/rows/bit_sums.hpp). The sums take free memory of the arena; where it has no room for
// them, the host adds.
std::vector<std::uint64_t> bit_sums_of(std::span<const ReplicaPart> parts, Stream& stream, Arena& arena);

}  // namespace forge
