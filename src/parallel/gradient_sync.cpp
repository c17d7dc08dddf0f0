#include "parallel/gradient_sync.hpp"

#include "kernels/kernels.hpp"

namespace forge {

template <class T>
GradientSync<T>::GradientSync(Arena& arena, Stream& compute, const ParameterStorage<T>& storage, Mesh& mesh)
    : storage_(storage), mesh_(mesh) {
  if (mesh.world().size() > 1) stream_.open();
  for (std::size_t k = 0; k < pools_.size(); ++k) {
    const PoolSize size = gradient_pool(storage.units(), static_cast<PoolClass>(k), storage.zero(), true);
    const std::size_t bytes = static_cast<std::size_t>(size.elements) * sizeof(S);
    for (int i = 0; i < size.buffers; ++i) {
      void* data = arena.allocate(bytes, Category::gradients);
      fill_zero(compute, data, bytes);
      pools_[k].push_back({View<S, 1>(static_cast<S*>(data), {{size.elements}}), {}, false});
    }
  }
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const UnitStorage<T>& s = storage.unit(u);
    matrices_.push_back(!s.sums.empty() ? s.sums.data : storage.local(u).vectors_begin == 0 ? s.vectors.data : nullptr);
  }
}

template <class T>
void GradientSync<T>::start_step(Stream& compute) {
  storage_.zero_gradients(compute);
}

template <class T>
typename GradientSync<T>::S* GradientSync<T>::matrices(std::size_t u) const {
  require(matrices_[u] != nullptr, "a layer adds to a unit's gradients that have no place");
  return matrices_[u];
}

template <class T>
UnitPart<typename GradientSync<T>::S> GradientSync<T>::vectors(std::size_t u) const {
  const UnitStorage<T>& s = storage_.unit(u);
  if (s.sums.empty()) return {s.vectors.data, storage_.local(u).vectors_begin};
  return {s.sums.data, 0};
}

template <class T>
void GradientSync<T>::clear(Stream& compute, std::size_t u, int place) {
  Place& p = place_of(u, place);
  if (p.used) p.free.wait(compute);
  fill_zero(compute, p.data.data, static_cast<std::size_t>(storage_.local(u).elements) * sizeof(S));
  matrices_[u] = p.data.data;
}

template <class T>
void GradientSync<T>::reduce(Stream& compute, std::size_t u, int place, bool last) {
  const UnitStorage<T>& s = storage_.unit(u);
  if (place < 0) {
    reduce_shards(compute, u, s.sums.empty() ? s.vectors : s.sums);
  } else {
    Place& p = place_of(u, place);
    const View<S, 1> sums = p.data.slice(0, storage_.local(u).elements);
    if (last && !s.vectors.empty())
      copy_on_device(compute, sums.data + storage_.local(u).vectors_begin, s.vectors.data,
                     static_cast<std::size_t>(s.vectors.size()) * sizeof(S));
    reduce_shards(compute, u, sums);
    p.free.record(stream_.or_else(compute));
    p.used = true;
    matrices_[u] = nullptr;
  }
  if (last && stream_) reduce_step(u);
}

// gradient += Σ over the shard group of sums(elements), this rank's part; sums are overwritten.
template <class T>
void GradientSync<T>::reduce_shards(Stream& compute, std::size_t u, View<S, 1> sums) {
  const UnitStorage<T>& s = storage_.unit(u);
  const Zero& zero = storage_.zero(u);
  const GradientGroups groups = mesh_.gradient_groups(class_of(storage_.local(u)) == UnitClass::experts);
  const bool adds = s.sums.empty();  // else the gradient is a part of the sums
  stream_.follow(compute);
  if (!zero.shards_state()) {
    if (stream_) groups.all.all_reduce(*stream_, sums);
    return;
  }
  const Range own = zero.shard_of(storage_.local(u));
  const View<S, 1> part = sums.slice(own.begin, own.end);
  if (zero.shards > 1) groups.shards.reduce_scatter(*stream_, View<const S, 1>(sums), part);
  if (adds) add<S>(stream_.or_else(compute), part, s.gradient);
}

// What is summed once a step, on the gradient of the rank's state.
template <class T>
void GradientSync<T>::reduce_step(std::size_t u) {
  const UnitStorage<T>& s = storage_.unit(u);
  const LocalUnit& unit = storage_.local(u);
  const bool experts = class_of(unit) == UnitClass::experts;
  Communicator& replicas = mesh_.gradient_groups(experts).replicas;
  if (storage_.zero(u).shards_state() && replicas.size() > 1) replicas.all_reduce(*stream_, s.gradient);
  if (experts) return;  // nothing of them is replicated in any other way
  reduce_parts(mesh_.gradient_tp(), u, {unit.replicated_begin, unit.replicated_end});
  for (const Range& copied : unit.copied) reduce_parts(mesh_.gradient_copies(), u, copied);
}

template <class T>
void GradientSync<T>::reduce_parts(Communicator& group, std::size_t u, const Range& part) {
  const Range& state = storage_.unit(u).state;
  const Range here = intersection(part, state);
  if (group.size() == 1 || here.empty()) return;
  group.all_reduce(*stream_, storage_.unit(u).gradient.slice(here.begin - state.begin, here.end - state.begin));
}

template <class T>
void GradientSync<T>::reduce_tied(std::size_t table) {
  mesh_.gradient_tied().all_reduce(*stream_, storage_.unit(table).gradient);
}

template <class T>
void GradientSync<T>::finish(Stream& compute) {
  if (!stream_) return;
  done_.record(*stream_);
  done_.wait(compute);
  stream_.rethrow();
}

template class GradientSync<double>;
template class GradientSync<float>;
template class GradientSync<bf16>;

}  // namespace forge
