#include "checkpoint/shared_state.hpp"

#include <array>
#include <set>

#include "core/random.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"

namespace forge {

namespace {

// The first rank holds all of them at once on the host.
constexpr std::size_t most_shared_bytes = std::size_t{64} << 20;

std::size_t bytes_of_whole(const StateTensor& tensor) {
  return to_size(element_count(tensor.shape)) * size_of(tensor.type);
}

bool is_small_and_whole(const StateTensor& tensor) {
  return tensor.name.starts_with("state/") && bytes_of_whole(tensor) <= most_shared_bytes &&
         tensor.pieces.size() == 1 && tensor.pieces.front().box == Box{Extents(tensor.shape.size(), 0), tensor.shape};
}

template <class F>
LoadedState split_by(const std::vector<StateTensor>& state, F is_shared) {
  LoadedState parts;
  for (const StateTensor& tensor : state) (is_shared(tensor) ? parts.shared : parts.own).push_back(tensor);
  return parts;
}

}  // namespace

// Where ranks need different ones, each reads its own.
LoadedState split_shared(Communicator& ranks, const std::vector<StateTensor>& state) {
  LoadedState parts = split_by(state, is_small_and_whole);
  std::uint64_t all = 0;
  for (const StateTensor& tensor : parts.shared) all = mix(all, mix(hash_of(tensor.name), bytes_of_whole(tensor)));
  std::array<std::int64_t, 2> most{static_cast<std::int64_t>(all), ~static_cast<std::int64_t>(all)};
  ranks.max_host(most);
  return most[0] == ~most[1] ? std::move(parts) : LoadedState{state, {}};
}

LoadedState split_like(const LoadedState& other, const std::vector<StateTensor>& state) {
  std::set<std::string> names;
  for (const StateTensor& tensor : other.shared) names.insert(tensor.name);
  return split_by(state, [&](const StateTensor& tensor) { return names.contains(tensor.name); });
}

std::string bytes_of_shared(CheckpointFiles& files, const std::vector<StateTensor>& shared) {
  std::size_t size = 0;
  for (const StateTensor& tensor : shared) size += bytes_of_whole(tensor);
  std::string bytes(size, '\0');
  std::vector<StateTensor> on_host = shared;
  auto* at = reinterpret_cast<std::byte*>(bytes.data());
  for (StateTensor& tensor : on_host) {
    tensor.pieces.front().data = at;
    at += bytes_of_whole(tensor);
  }
  if (!on_host.empty()) files.read(on_host);
  return bytes;
}

void hand_out_shared(Communicator& ranks, std::string bytes, const std::vector<StateTensor>& shared, Stream& stream) {
  if (shared.empty()) return;
  ranks.broadcast_host(bytes, 0);
  const char* at = bytes.data();
  for (const StateTensor& tensor : shared) {
    copy_to_device(stream, tensor.pieces.front().data, at, bytes_of_whole(tensor));
    at += bytes_of_whole(tensor);
  }
  stream.synchronize();
}

}  // namespace forge
