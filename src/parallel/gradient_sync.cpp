#include "parallel/gradient_sync.hpp"

#include <algorithm>

#include "kernels/kernels.hpp"
#include "kernels/rows/bit_sums.hpp"
#include "kernels/rows/rounded_sums.hpp"
#include "parallel/element_place.hpp"
#include "parallel/level_sums.hpp"

namespace forge {

template <class T>
GradientSync<T>::GradientSync(Arena& arena, Stream& compute, ParameterStorage<T>& storage, Mesh& mesh)
    : storage_(storage), mesh_(mesh), additions_(storage.size(), 0) {
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
  if (const std::int64_t elements = exchanged_gradients(storage.units()))
    for (T*& numbers : exchanged_)
      numbers = static_cast<T*>(arena.allocate(to_size(elements) * sizeof(T), Category::gradients));
}

template <class T>
void GradientSync<T>::start_step(Stream& compute, std::uint64_t seed, std::int64_t step) {
  fresh_.forget();
  for (std::size_t u = 0; u < storage_.size(); ++u) {
    const RankUnit<T>& unit = storage_.unit(u);
    unit.sums.empty() ? unit.zero_gradients(compute) : begin_sums(compute, unit, unit.sums.data);
  }
  seed_ = seed;
  step_ = step;
  std::fill(additions_.begin(), additions_.end(), 0);
}

template <class T>
void GradientSync<T>::clear(Stream& compute, std::size_t u, int buffer) {
  RankUnit<T>& unit = storage_.unit(u);
  PoolBuffer& p = buffer_of(unit, buffer);
  if (p.used) mesh_.scalars().wait(compute, p.free);
  begin_sums(compute, unit, p.data.data);
  unit.matrix_sums = p.data.data;
}

template <class T>
void GradientSync<T>::begin_sums(Stream& compute, const RankUnit<T>& unit, A* sums) {
  const std::int64_t fresh = fresh_elements(unit.local);
  fresh_.begin(sums, fresh);
  if (const std::int64_t rest = unit.local.elements - fresh; rest > 0)
    fill_zero(compute, sums + fresh, to_size(rest) * sizeof(A));
}

template <class T>
void GradientSync<T>::reduce(Stream& compute, std::size_t u, int buffer, bool last) {
  RankUnit<T>& unit = storage_.unit(u);
  View<A, 1> sums = unit.sums.empty() ? unit.vectors : unit.sums;
  if (buffer >= 0) sums = buffer_of(unit, buffer).data.slice(0, unit.local.elements);
  fresh_.clear(compute, sums.data, sums.size());
  if (buffer >= 0) {
    if (last && !unit.vectors.empty())
      copy_on_device(compute, sums.data + unit.local.vectors_begin, unit.vectors.data,
                     to_size(unit.vectors.size()) * sizeof(A));
  }
  add_to_checksum(compute, sums);
  stream_.follow(compute);
  unit.rounds_gradients() ? reduce_rounded(compute, u, sums, last) : reduce_shards(compute, unit, sums);
  if (buffer >= 0) {
    PoolBuffer& p = buffer_of(unit, buffer);
    p.free.record(stream_.or_else(compute));
    p.used = true;
    unit.matrix_sums = nullptr;
  }
  if (last && stream_ && !unit.rounds_gradients()) reduce_step(unit);
}

template <class T>
void GradientSync<T>::add_to_checksum(Stream& compute, View<const A, 1> sums) {
  using Word = std::conditional_t<sizeof(A) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;
  if (checksum_.total.empty()) return;
  add_bits<Word>(compute, View<const Word, 1>(reinterpret_cast<const Word*>(sums.data), {{sums.size()}}),
                 checksum_.pieces++, checksum_.partial, checksum_.total);
}

// gradient += Σ over the shard group of sums(elements), this rank's part; sums are overwritten.
template <class T>
void GradientSync<T>::reduce_shards(Stream& compute, const RankUnit<T>& unit, View<A, 1> sums) {
  const Reduction over_shards = reduction_over_shards(unit.local);
  const View<A, 1> part = sums.slice(over_shards.part.begin, over_shards.part.end);
  run(stream_.or_else(compute), over_shards, sums, part);
  const bool adds = unit.sums.empty() && !unit.rounds_gradients();  // else the gradient is a part of the sums
  if (adds) add<A>(stream_.or_else(compute), part, unit.gradient);
}

template <class T>
void GradientSync<T>::run(Stream& stream, const Reduction& reduction, View<A, 1> sums, View<A, 1> part) {
  if (reduction.nodes > 1)
    return sum_in_levels<T>(mesh_.of(reduction.node()), mesh_.of(reduction.rail()), stream, sums, part, exchanged_);
  Communicator& group = mesh_.of(reduction.group);
  if (group.size() == 1) return;
  if (reduction.collective == Collective::reduce_scatter)
    group.reduce_scatter(stream, View<const A, 1>(sums), part);
  else
    group.all_reduce(stream, part);
}

// N ← R(N + s) of a microbatch's s, of the rank's state where each is reduced, else of the whole unit. Behind the last
// one ranks sum s ← s + N in A, and N ← R(s): the same numbers round on all ranks that then have the same sums.
template <class T>
void GradientSync<T>::reduce_rounded(Stream& compute, std::size_t u, View<A, 1> sums, bool last) {
  RankUnit<T>& unit = storage_.unit(u);
  const bool each = unit.local.zero.reduce_each;
  const std::int64_t number = additions_[u]++;
  const View<T, 1> kept = each ? unit.narrow_gradient : unit.narrow_sums;
  const Range held = each ? unit.state : Range{0, unit.local.elements};
  Stream& stream = stream_.or_else(compute);
  if (each) reduce_shards(compute, unit, sums);
  const auto kept_part = [&](const Range& part) { return kept.slice(part.begin - held.begin, part.end - held.begin); };
  if (!last || !stream_) {
    const Range added = last ? held : intersection(held, {0, unit.local.vectors_begin});
    return for_tensors(unit, added, Draws::own, number, [&](const Rounding& rounding, const Range& part) {
      add_rounded<T>(stream, rounding, sums.slice(part.begin, part.end), kept_part(part));
    });
  }
  if (number > 0) add_sums<T>(stream, kept, sums.slice(held.begin, held.end));
  if (!each) reduce_shards(compute, unit, sums);
  unit.gradient = sums.slice(unit.state.begin, unit.state.end);
  reduce_step(unit);
  unit.gradient = {};
  for_tensors(unit, unit.state, Draws::shared, number, [&](const Rounding& rounding, const Range& part) {
    set_rounded<T>(stream, rounding, sums.slice(part.begin, part.end), kept_part(part));
  });
}

// Stages hold the same elements of the model by the same key: ranks are told apart within theirs.
template <class T>
template <class F>
void GradientSync<T>::for_tensors(const RankUnit<T>& unit, const Range& range, Draws draws, std::int64_t number,
                                  F f) const {
  const int stage = mesh_.world().size() / mesh_.pipeline().size();
  const int rank = draws == Draws::own ? mesh_.rank() % stage : 0;
  for (std::size_t p = 0; p < unit.local.pieces.size(); ++p) {
    const Range part = intersection(unit.local.range_of(p), range);
    if (part.empty()) continue;
    ElementPlace place = forge::place_of(unit.local, part.begin, seed_, RoundingUse::gradients);
    place.key = mix(mix(place.key, static_cast<std::uint64_t>(step_)), static_cast<std::uint64_t>(rank));
    f(Rounding(place, number), part);
  }
}

// What is summed once a step, on the gradient of the rank's state.
template <class T>
void GradientSync<T>::reduce_step(const RankUnit<T>& unit) {
  for (const Reduction& sum : step_reductions(unit.local)) {
    const View<A, 1> part = unit.gradient.slice(sum.part.begin - unit.state.begin, sum.part.end - unit.state.begin);
    run(*stream_, sum, part, part);
  }
}

// Places of tables are free by then, and the norm waits for all that is done here.
template <class T>
void GradientSync<T>::reduce_tied(std::size_t table) {
  RankUnit<T>& unit = storage_.unit(table);
  const bool rounds = unit.rounds_gradients();
  if (rounds) {
    unit.gradient = buffer_of(unit, 0).data.slice(0, unit.state.size());
    convert<T, A>(*stream_, unit.narrow_gradient, unit.gradient);
  }
  mesh_.gradient_tied().all_reduce(*stream_, storage_.unit(table).gradient);
  if (!rounds) return;
  for_tensors(unit, unit.state, Draws::shared, -1, [&](const Rounding& rounding, const Range& part) {
    const std::int64_t begin = part.begin - unit.state.begin, end = part.end - unit.state.begin;
    set_rounded<T>(*stream_, rounding, unit.gradient.slice(begin, end), unit.narrow_gradient.slice(begin, end));
  });
  unit.gradient = {};
}

template <class T>
void GradientSync<T>::finish(Stream& compute) {
  if (!stream_) return;
  done_.record(*stream_);
  mesh_.scalars().wait(compute, done_);
  stream_.rethrow();
}

FORGE_INSTANTIATE_CLASS(GradientSync);

}  // namespace forge
