#include "parallel/parameter_gather.hpp"

namespace forge {

template <class T>
ParameterGather<T>::ParameterGather(Arena& arena, Stream& compute, const ParameterStorage<T>& storage, Mesh& mesh)
    : storage_(storage), mesh_(mesh), gathered_(storage.size()) {
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const UnitStorage<T>& s = storage.unit(u);
    const bool shares = storage.zero(u).gathers();
    weights_.push_back(shares ? nullptr : s.whole.empty() ? s.copy.data : s.whole.data);
    if (shares) stream_.open();
  }
  for (std::size_t k = 0; k < pools_.size(); ++k) {
    const PoolSize size = parameter_pool(storage.units(), static_cast<PoolClass>(k), storage.zero());
    const std::size_t bytes = static_cast<std::size_t>(size.elements) * sizeof(T);
    for (int i = 0; i < size.buffers; ++i) {
      void* data = arena.allocate(bytes, Category::parameters);
      fill_zero(compute, data, bytes);
      pools_[k].push_back(View<T, 1>(static_cast<T*>(data), {{size.elements}}));
    }
  }
}

template <class T>
View<T, 1> ParameterGather<T>::target(std::size_t u, int place) {
  if (place < 0) return storage_.unit(u).whole;
  const auto& pool = pools_[static_cast<std::size_t>(pool_of(storage_.local(u)))];
  return pool[static_cast<std::size_t>(place)].slice(0, storage_.local(u).elements);
}

template <class T>
void ParameterGather<T>::gather(Stream& compute, std::size_t u, int place) {
  Communicator& shards = mesh_.parameter_shards(class_of(storage_.local(u)) == UnitClass::experts);
  stream_.run(compute, gathered_[u], [&](Stream& stream) {
    shards.all_gather(stream, View<const T, 1>(storage_.unit(u).copy), target(u, place));
  });
}

template <class T>
void ParameterGather<T>::wait(Stream& compute, std::size_t u, int place) {
  gathered_[u].wait(compute);
  weights_[u] = target(u, place).data;
}

template <class T>
void ParameterGather<T>::finish() {
  stream_.rethrow();
}

template class ParameterGather<double>;
template class ParameterGather<float>;
template class ParameterGather<bf16>;

}  // namespace forge
