#include "parallel/gradient_sync.hpp"

#include "kernels/kernels.hpp"

namespace forge {

template <class T>
GradientSync<T>::GradientSync(Arena& arena, Stream& compute, ParameterStorage<T>& storage, Mesh& mesh)
    : storage_(storage), mesh_(mesh) {
  if (mesh.world().size() > 1) stream_.open();
  for (std::size_t k = 0; k < pools_.size(); ++k) {
    const PoolSize size = gradient_pool(storage.units(), static_cast<PoolClass>(k));
    const std::size_t bytes = to_size(size.elements) * sizeof(A);
    for (int i = 0; i < size.buffers; ++i) {
      void* data = arena.allocate(bytes, Category::gradients);
      fill_zero(compute, data, bytes);
      pools_[k].push_back({View<A, 1>(static_cast<A*>(data), {{size.elements}}), {}, false});
    }
  }
}

template <class T>
void GradientSync<T>::clear(Stream& compute, std::size_t u, int place) {
  RankUnit<T>& unit = storage_.unit(u);
  PoolBuffer& p = place_of(unit, place);
  if (p.used) p.free.wait(compute);
  fill_zero(compute, p.data.data, to_size(unit.local.elements) * sizeof(A));
  unit.matrix_sums = p.data.data;
}

template <class T>
void GradientSync<T>::reduce(Stream& compute, std::size_t u, int place, bool last) {
  RankUnit<T>& unit = storage_.unit(u);
  if (place < 0) {
    reduce_shards(compute, unit, unit.sums.empty() ? unit.vectors : unit.sums);
  } else {
    PoolBuffer& p = place_of(unit, place);
    const View<A, 1> sums = p.data.slice(0, unit.local.elements);
    if (last && !unit.vectors.empty())
      copy_on_device(compute, sums.data + unit.local.vectors_begin, unit.vectors.data,
                     to_size(unit.vectors.size()) * sizeof(A));
    reduce_shards(compute, unit, sums);
    p.free.record(stream_.or_else(compute));
    p.used = true;
    unit.matrix_sums = nullptr;
  }
  if (last && stream_) reduce_step(unit);
}

// gradient += Σ over the shard group of sums(elements), this rank's part; sums are overwritten.
template <class T>
void GradientSync<T>::reduce_shards(Stream& compute, const RankUnit<T>& unit, View<A, 1> sums) {
  const Zero& zero = unit.local.zero;
  const GradientGroups groups = mesh_.gradient_groups(unit.local.is_experts());
  const bool adds = unit.sums.empty();  // else the gradient is a part of the sums
  stream_.follow(compute);
  if (!zero.shards_state()) {
    if (stream_) groups.all.all_reduce(*stream_, sums);
    return;
  }
  const View<A, 1> part = sums.slice(unit.state.begin, unit.state.end);
  if (zero.shards > 1) groups.shards.reduce_scatter(*stream_, View<const A, 1>(sums), part);
  if (adds) add<A>(stream_.or_else(compute), part, unit.gradient);
}

// What is summed once a step, on the gradient of the rank's state.
template <class T>
void GradientSync<T>::reduce_step(const RankUnit<T>& unit) {
  const LocalUnit& local = unit.local;
  Communicator& replicas = mesh_.gradient_groups(local.is_experts()).replicas;
  if (local.zero.shards_state() && replicas.size() > 1) replicas.all_reduce(*stream_, unit.gradient);
  if (local.is_experts()) return;  // nothing of them is replicated in any other way
  reduce_parts(mesh_.gradient_tp(), unit, {local.replicated_begin, local.replicated_end});
  for (const Range& copied : local.copied) reduce_parts(mesh_.gradient_copies(), unit, copied);
}

template <class T>
void GradientSync<T>::reduce_parts(Communicator& group, const RankUnit<T>& unit, const Range& part) {
  const Range here = intersection(part, unit.state);
  if (group.size() == 1 || here.empty()) return;
  group.all_reduce(*stream_, unit.gradient.slice(here.begin - unit.state.begin, here.end - unit.state.begin));
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

FORGE_INSTANTIATE_CLASS(GradientSync);

}  // namespace forge
