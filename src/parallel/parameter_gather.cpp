#include "parallel/parameter_gather.hpp"

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
  stream_.run(compute, unit.gathered, [&](Stream& stream) {
    if (coded_.has(u)) return coded_.gather(stream, u, unit, shards, target(unit, buffer));
    shards.all_gather(stream, View<const T, 1>(unit.copy), target(unit, buffer));
  });
}

template <class T>
void ParameterGather<T>::wait(Stream& compute, std::size_t u, int buffer) {
  RankUnit<T>& unit = storage_.unit(u);
  unit.gathered.wait(compute);
  unit.gathered_weights = target(unit, buffer).data;
}

template <class T>
void ParameterGather<T>::finish() {
  stream_.rethrow();
}

FORGE_INSTANTIATE_CLASS(ParameterGather);

}  // namespace forge
