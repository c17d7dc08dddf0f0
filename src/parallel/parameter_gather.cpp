#include "parallel/parameter_gather.hpp"

namespace forge {

template <class T>
ParameterGather<T>::ParameterGather(Arena& arena, Stream& compute, const ParameterStorage<T>& storage, Mesh& mesh)
    : storage_(storage), mesh_(mesh), gathered_(storage.size()), posted_(storage.size(), 0) {
  const bool shares = mesh.parameter_shards().size() > 1 || mesh.parameter_shards(true).size() > 1;
  if (!storage.zero().front().shards_state() || !shares) return;
  stream_ = std::make_unique<Stream>(1, Stream::Kind::Worker);
  for (std::size_t k = 0; k < pools_.size(); ++k) {
    const PoolSize size = parameter_pool(storage.units(), static_cast<PoolClass>(k), storage.zero());
    const std::size_t bytes = static_cast<std::size_t>(size.elements) * sizeof(T);
    pools_[k].pool = GatherPool(size.buffers);
    for (int i = 0; i < size.buffers; ++i) {
      void* data = arena.allocate(bytes, Category::parameters);
      fill_zero(compute, data, bytes);
      pools_[k].places.push_back({View<T, 1>(static_cast<T*>(data), {{size.elements}}), false, {}});
    }
  }
}

template <class T>
void ParameterGather<T>::gather(Stream& compute, std::size_t u, View<T, 1> whole) {
  ready_.record(compute);
  ready_.wait(*stream_);
  shards_of(u).all_gather(*stream_, View<const T, 1>(storage_.unit(u).copy), whole);
  gathered_[u].record(*stream_);
}

template <class T>
bool ParameterGather<T>::prefetch(Stream& compute, std::size_t u) {
  if (!is_gathered(u)) return true;
  Pool& p = pool_at(u);
  if (p.places.empty()) {
    if (!posted_[u]) gather(compute, u, storage_.unit(u).whole);
    posted_[u] = 1;
    return true;
  }
  if (p.pool.find(u) >= 0) return true;
  const int i = p.pool.take(u);
  if (i < 0) return false;
  Place& place = p.places[static_cast<std::size_t>(i)];
  if (place.touched) place.idle.wait(*stream_);
  gather(compute, u, place.data.slice(0, storage_.local(u).elements));
  return true;
}

template <class T>
const T* ParameterGather<T>::use(Stream& compute, std::size_t u) {
  const UnitStorage<T>& s = storage_.unit(u);
  if (!is_gathered(u)) return s.whole.empty() ? s.copy.data : s.whole.data;
  require(prefetch(compute, u), "a layer uses more units at a time than the parameter pool has places");
  gathered_[u].wait(compute);
  Pool& p = pool_at(u);
  if (p.places.empty()) return s.whole.data;
  p.pool.use(u);
  return p.places[static_cast<std::size_t>(p.pool.find(u))].data.data;
}

template <class T>
void ParameterGather<T>::release(Stream& compute, std::size_t u) {
  Pool& p = pool_at(u);
  if (!is_gathered(u) || p.places.empty()) return;
  p.pool.release(u);
  Place& place = p.places[static_cast<std::size_t>(p.pool.find(u))];
  place.idle.record(compute);
  place.touched = true;
}

template <class T>
void ParameterGather<T>::changed(Stream& compute) {
  if (!stream_) return;
  for (Pool& p : pools_) p.pool.forget();
  posted_.assign(posted_.size(), 0);
  // Stages 1 and 2 gather at once, in the order of use, behind whatever comes next.
  if (storage_.zero().front().stage < 3)
    for (std::size_t u = 0; u < storage_.size(); ++u) prefetch(compute, u);
}

template <class T>
void ParameterGather<T>::finish() {
  if (stream_ && !stream_->native()) stream_->synchronize();
}

template class ParameterGather<double>;
template class ParameterGather<float>;
template class ParameterGather<bf16>;

}  // namespace forge
