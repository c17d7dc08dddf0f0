#include "parallel/parameter_gather.hpp"

#include <algorithm>

#include "core/to_size.hpp"

namespace forge {

template <class T>
ParameterGather<T>::ParameterGather(Arena& arena, Stream& compute, ParameterStorage<T>& storage, Mesh& mesh,
                                    const RunSetup& setup, const AmaxHistory& history)
    : storage_(storage), mesh_(mesh), coded_(arena, compute, setup.buffers, setup.share.coded, history) {
  for (const LocalUnit& unit : storage.units())
    if (unit.zero.gathers()) stream_.open();
  for (std::size_t k = 0; k < pools_.size(); ++k) {
    const PoolSize size = parameter_pool(storage.units(), static_cast<PoolClass>(k));
    const std::size_t bytes = to_size(size.elements) * sizeof(T);
    for (int i = 0; i < size.buffers; ++i) {
      void* data = arena.allocate(bytes, Category::parameters);
      fill_zero(compute, data, bytes);
      pools_[k].push_back(View<T, 1>(static_cast<T*>(data), {{size.elements}}));
    }
  }
}

template <class T>
View<T, 1> ParameterGather<T>::target(const RankUnit<T>& unit, int buffer) const {
  if (buffer < 0) return unit.whole;
  const auto& pool = pools_[to_size(pool_of(unit.local))];
  return pool[to_size(buffer)].slice(0, unit.local.elements);
}

template <class T>
void ParameterGather<T>::gather(Stream& compute, std::size_t u, int buffer) {
  RankUnit<T>& unit = storage_.unit(u);
  Communicator& shards = mesh_.parameter_shards(unit.local.is_experts());
  stream_.run(compute, unit.gathered[track_of(unit, buffer)], [&](Stream& stream) {
    if (coded_.has(u)) return coded_.gather(stream, u, unit, shards, target(unit, buffer));
    shards.all_gather(stream, View<const T, 1>(unit.copy), target(unit, buffer));
  });
}

template <class T>
void ParameterGather<T>::wait(Stream& compute, std::size_t u, int buffer) {
  RankUnit<T>& unit = storage_.unit(u);
  mesh_.parameter_shards(unit.local.is_experts()).wait(compute, unit.gathered[track_of(unit, buffer)]);
  const T* const weights = target(unit, buffer).data;
  if (buffer < 0)
    unit.gathered_weights.fill(weights);
  else
    unit.gathered_weights[track_of(unit, buffer)] = weights;
}

template <class T>
std::vector<std::span<const std::byte>> ParameterGather<T>::draw_gathered(Stream& compute, std::uint64_t seed) {
  struct Drawn {
    UnitKind kind;
    View<T, 1> values;
  };
  std::vector<Drawn> drawn;
  std::vector<std::span<const std::byte>> memory;
  const auto draw = [&](std::size_t u, View<T, 1> to) {
    const LocalUnit& unit = storage_.local(u);
    const auto alike = std::find_if(drawn.begin(), drawn.end(), [&](const Drawn& d) {
      return d.kind == unit.kind && d.values.size() == to.size();
    });
    const std::size_t bytes = to_size(to.size()) * sizeof(T);
    if (alike == drawn.end())
      storage_.draw_whole(compute, u, seed, to);
    else
      copy_on_device(compute, to.data, alike->values.data, bytes);
    drawn.push_back({unit.kind, to});
    memory.emplace_back(reinterpret_cast<const std::byte*>(to.data), bytes);
  };
  for (std::size_t u = 0; u < storage_.size(); ++u) {
    const LocalUnit& unit = storage_.local(u);
    if (!unit.zero.gathers() || coded_.has(u)) continue;
    for (const Event& gathered : storage_.unit(u).gathered) gathered.wait(compute);
    if (const View<T, 1> whole = storage_.unit(u).whole; !whole.empty()) {
      draw(u, whole);
      continue;
    }
    for (const View<T, 1>& buffer : pools_[to_size(pool_of(unit))])
      if (buffer.size() == unit.elements && std::none_of(memory.begin(), memory.end(), [&](const auto& m) {
            return m.data() == reinterpret_cast<const std::byte*>(buffer.data);
          }))
        draw(u, buffer);
  }
  return memory;
}

template <class T>
void ParameterGather<T>::finish() {
  stream_.rethrow();
}

FORGE_INSTANTIATE_CLASS(ParameterGather);

}  // namespace forge
