#include "parallel/replica_parts.hpp"

#include <algorithm>

#include "core/bytes.hpp"
#include "core/random.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/bit_sums.hpp"

namespace forge {

namespace {

// A buffer of a unit: the unit's elements that it has, in order.
struct UnitBuffer {
  std::string_view name;
  std::byte* data;
  std::vector<Range> has;
  DType type;
};

template <class V>
UnitBuffer buffer_of(std::string_view name, const View<V, 1>& values, const Range& has) {
  return {name, reinterpret_cast<std::byte*>(values.data), {has}, dtype_of<V>};
}

// Weights that are a part of the whole unit's come with it.
template <class T>
std::vector<UnitBuffer> buffers_of(const RankUnit<T>& unit, bool gathered) {
  const Range all{0, unit.local.elements};
  std::vector<UnitBuffer> buffers;
  if (!unit.whole.empty() && (gathered || !unit.local.zero.gathers()))
    buffers.push_back(buffer_of("weights", unit.whole, all));
  if (gathered) return buffers;
  const auto in_whole = [&](const void* data) {
    const auto* begin = reinterpret_cast<const std::byte*>(unit.whole.data);
    const auto* at = static_cast<const std::byte*>(data);
    return !buffers.empty() && at >= begin && at < begin + to_size(unit.whole.size()) * sizeof(T);
  };
  if (!unit.copy.empty() && !in_whole(unit.copy.data)) buffers.push_back(buffer_of("weights", unit.copy, unit.state));
  if (!unit.master.empty() && !unit.master_is_copy && !in_whole(unit.master.data))
    buffers.push_back(buffer_of("master weights", unit.master, unit.state));
  for (const auto& kept : unit.optimizer)
    buffers.push_back({kept.declared.name, static_cast<std::byte*>(kept.data), kept.kept, kept.declared.type});
  return buffers;
}

// The elements of `range` that the buffer has.
void add_part(std::vector<ReplicaPart>& parts, const std::string& name, const UnitBuffer& buffer, const Range& range) {
  std::int64_t before = 0;
  for (const Range& has : buffer.has) {
    if (const Range both = intersection(range, has); !both.empty())
      parts.push_back({name + ", " + std::string(buffer.name),
                       buffer.data + to_size(before + both.begin - has.begin) * size_of(buffer.type), both.size(),
                       buffer.type});
    before += has.size();
  }
}

// f of the type of words so large.
template <class F>
void with_word(DType type, F f) {
  switch (size_of(type)) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

template <class W>
std::uint64_t host_bit_sum(const ReplicaPart& part, Stream& stream) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  std::uint64_t sum = 0;
  for (std::int64_t at = 0; at < part.count; at += most) {
    std::vector<W> words(to_size(std::min(most, part.count - at)));
    copy_to_host(stream, words.data(), part.data + to_size(at) * sizeof(W), words.size() * sizeof(W));
    stream.synchronize();
    for (std::size_t j = 0; j < words.size(); ++j) sum += mix(to_size(at) + j, words[j]);
  }
  return sum;
}

}  // namespace

template <class T>
std::vector<ReplicaPart> replica_parts(const ParameterStorage<T>& storage, ReplicaKind kind, bool by_tensor) {
  const bool gathered = kind == ReplicaKind::gathered || kind == ReplicaKind::gathered_experts;
  std::vector<ReplicaPart> parts;
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const RankUnit<T>& unit = storage.unit(u);
    const std::vector<Range> ranges = alike(kind, unit.local);
    if (ranges.empty()) continue;
    for (const UnitBuffer& buffer : buffers_of(unit, gathered))
      for (const Range& range : ranges) {
        if (!by_tensor) {
          add_part(parts, unit.local.parameters.front().name, buffer, range);
          continue;
        }
        for (const LocalPiece& piece : unit.local.pieces)
          add_part(parts, unit.local.parameters[piece.parameter].name, buffer, intersection(range, piece.range()));
      }
  }
  return parts;
}

std::vector<std::uint64_t> bit_sums_of(std::span<const ReplicaPart> parts, Stream& stream, Arena& arena) {
  std::vector<std::uint64_t> sums(parts.size());
  const auto partials = to_size(sum_partials);
  const std::size_t bytes = align_up((partials + parts.size()) * sizeof(std::uint64_t));
  const Frame frame(arena);
  const bool room = arena.capacity() - arena.live() >= bytes;
  auto* const words = room ? static_cast<std::uint64_t*>(arena.allocate(bytes, Category::workspace)) : nullptr;
  for (std::size_t i = 0; i < parts.size(); ++i)
    with_word(parts[i].type, [&]<class W>(W) {
      if (!room) {
        sums[i] = host_bit_sum<W>(parts[i], stream);
        return;
      }
      sum_bits<W>(stream, View<const W, 1>(reinterpret_cast<const W*>(parts[i].data), {{parts[i].count}}),
                  View<std::uint64_t, 1>(words, {{sum_partials}}), View<std::uint64_t, 1>(words + partials + i, {{1}}));
    });
  if (room && !parts.empty()) {
    copy_to_host(stream, sums.data(), words + partials, sums.size() * sizeof(std::uint64_t));
    stream.synchronize();
  }
  return sums;
}

FORGE_INSTANTIATE_FUNCTION(replica_parts);

}  // namespace forge
