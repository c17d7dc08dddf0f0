#include "parallel/parameter_gather.hpp"

namespace forge {

template <class T>
ParameterGather<T>::ParameterGather(Arena& arena, Stream& compute, const ParameterStorage<T>& storage,
                                    Communicator& shards)
    : storage_(storage), shards_(shards), gathered_(storage.size()), posted_(storage.size(), 0) {
  if (!storage.zero().shards_state() || shards.size() == 1) return;
  stream_ = std::make_unique<Stream>(1, Stream::Kind::Worker);
  if (!has_parameter_pool(storage.zero())) return;
  const UnitBufferSpec spec = parameter_pool_buffer(storage.units(), storage.precision());
  for (int i = 0; i < parameter_pool_buffers; ++i) {
    void* data = arena.allocate(spec.bytes(), spec.category);
    fill_zero(compute, data, spec.bytes());
    pool_.push_back({View<T, 1>(static_cast<T*>(data), {{spec.elements}}), -1, 0, false, {}, 0});
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
typename ParameterGather<T>::Place* ParameterGather<T>::place_of(std::size_t u) {
  for (Place& place : pool_)
    if (place.unit == static_cast<std::int64_t>(u)) return &place;
  return nullptr;
}

// The place whose unit was used longest ago, among those that nobody uses.
template <class T>
typename ParameterGather<T>::Place* ParameterGather<T>::free_place() {
  Place* oldest = nullptr;
  for (Place& place : pool_)
    if (place.users == 0 && (!oldest || place.order < oldest->order)) oldest = &place;
  return oldest;
}

template <class T>
bool ParameterGather<T>::prefetch(Stream& compute, std::size_t u) {
  if (!stream_) return true;
  if (pool_.empty()) {
    if (!posted_[u]) gather(compute, u, storage_.unit(u).whole);
    posted_[u] = 1;
    return true;
  }
  if (place_of(u)) return true;
  Place* place = free_place();
  if (!place) return false;
  if (place->touched) place->idle.wait(*stream_);
  place->unit = static_cast<std::int64_t>(u);
  place->order = ++order_;
  gather(compute, u, place->data.slice(0, storage_.local(u).elements));
  return true;
}

template <class T>
const T* ParameterGather<T>::use(Stream& compute, std::size_t u) {
  const UnitStorage<T>& s = storage_.unit(u);
  if (!stream_) return s.whole.empty() ? s.copy.data : s.whole.data;
  require(prefetch(compute, u), "a layer uses more units at a time than the parameter pool has places");
  gathered_[u].wait(compute);
  if (!stream_->native()) stream_->synchronize();  // hands on what the worker threw
  if (pool_.empty()) return s.whole.data;
  Place* place = place_of(u);
  ++place->users;
  place->order = ++order_;
  return place->data.data;
}

template <class T>
void ParameterGather<T>::release(Stream& compute, std::size_t u) {
  Place* place = place_of(u);
  if (!place) return;
  --place->users;
  place->idle.record(compute);
  place->touched = true;
}

template <class T>
void ParameterGather<T>::changed(Stream& compute) {
  if (!stream_) return;
  for (Place& place : pool_) place.unit = -1;
  posted_.assign(posted_.size(), 0);
  // Stages 1 and 2 gather at once, in the order of use, behind whatever comes next.
  if (storage_.zero().stage < 3)
    for (std::size_t u = 0; u < storage_.size(); ++u) prefetch(compute, u);
}

template class ParameterGather<double>;
template class ParameterGather<float>;
template class ParameterGather<bf16>;

}  // namespace forge
