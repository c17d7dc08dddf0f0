#include "parallel/parameter_gather.hpp"

namespace forge {

template <class T>
ParameterGather<T>::ParameterGather(Arena& arena, Stream& compute, const ParameterStorage<T>& storage,
                                    Communicator& shards)
    : storage_(storage),
      shards_(shards),
      gathered_(storage.size()),
      posted_(storage.size(), 0),
      pool_(parameter_pool_buffers) {
  if (!storage.zero().shards_state() || shards.size() == 1) return;
  stream_ = std::make_unique<Stream>(1, Stream::Kind::Worker);
  if (!has_parameter_pool(storage.zero())) return;
  const UnitBufferSpec spec = parameter_pool_buffer(storage.units(), storage.precision());
  for (int i = 0; i < parameter_pool_buffers; ++i) {
    void* data = arena.allocate(spec.bytes(), spec.category);
    fill_zero(compute, data, spec.bytes());
    places_.push_back({View<T, 1>(static_cast<T*>(data), {{spec.elements}}), false, {}});
  }
}

template <class T>
void ParameterGather<T>::gather(Stream& compute, std::size_t u, View<T, 1> whole) {
  Event ready;
  ready.record(compute);
  ready.wait(*stream_);
  shards_.all_gather(*stream_, View<const T, 1>(storage_.unit(u).copy), whole);
  gathered_[u].record(*stream_);
}

template <class T>
bool ParameterGather<T>::prefetch(Stream& compute, std::size_t u) {
  if (!stream_) return true;
  if (places_.empty()) {
    if (!posted_[u]) gather(compute, u, storage_.unit(u).whole);
    posted_[u] = 1;
    return true;
  }
  if (pool_.find(u) >= 0) return true;
  const int i = pool_.take(u);
  if (i < 0) return false;
  Place& place = places_[static_cast<std::size_t>(i)];
  if (place.touched) place.idle.wait(*stream_);
  gather(compute, u, place.data.slice(0, storage_.local(u).elements));
  return true;
}

template <class T>
const T* ParameterGather<T>::use(Stream& compute, std::size_t u) {
  const UnitStorage<T>& s = storage_.unit(u);
  if (!stream_) return s.whole.empty() ? s.copy.data : s.whole.data;
  require(prefetch(compute, u), "a layer uses more units at a time than the parameter pool has places");
  gathered_[u].wait(compute);
  if (places_.empty()) return s.whole.data;
  pool_.use(u);
  return places_[static_cast<std::size_t>(pool_.find(u))].data.data;
}

template <class T>
void ParameterGather<T>::release(Stream& compute, std::size_t u) {
  if (places_.empty()) return;
  pool_.release(u);
  Place& place = places_[static_cast<std::size_t>(pool_.find(u))];
  place.idle.record(compute);
  place.touched = true;
}

template <class T>
void ParameterGather<T>::changed(Stream& compute) {
  if (!stream_) return;
  pool_.forget();
  posted_.assign(posted_.size(), 0);
  // Stages 1 and 2 gather at once, in the order of use, behind whatever comes next.
  if (storage_.zero().stage < 3)
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
