#include "parallel/storage.hpp"

#include "kernels/kernels.hpp"

namespace forge {

namespace {

template <class P>
View<P, 1> view_of(void* data, std::int64_t elements) {
  return data ? View<P, 1>(static_cast<P*>(data), {{elements}}) : View<P, 1>();
}

template <class P>
View<P, 1> part_of(View<P, 1> whole, const Range& range) {
  return whole.empty() ? whole : whole.slice(range.begin, range.end);
}

}  // namespace

template <class T>
RankUnit<T>::RankUnit(Arena& arena, Stream& stream, const LocalUnit& unit, const Precision& precision, StorageKind kind)
    : local(unit),
      state(unit.state()),
      counted(counted_ranges(unit)),
      master_is_copy(unit.frozen ? dtype_of<A> != dtype_of<T>
                                 : precision.storage != dtype_of<A> && precision.storage == precision.compute) {
  std::array<void*, to_size(UnitBuf::count_)> data{};
  for (const UnitBufferSpec& buffer : unit_buffers(unit, precision, kind)) {
    void*& p = data[to_size(buffer.id)];
    p = arena.allocate(buffer.bytes(), buffer.category);
    fill_zero(stream, p, buffer.bytes());
    if (buffer.id != UnitBuf::optimizer) continue;
    const StateBuffer& declared = kind.optimizer[optimizer.size()];
    optimizer.push_back({declared, kept_ranges(unit, declared.of), p});
  }
  auto at = [&](UnitBuf id) { return data[to_size(id)]; };
  const std::int64_t n = unit.elements;
  whole = view_of<T>(at(UnitBuf::whole), n);
  if (!master_is_copy) master = view_of<A>(at(UnitBuf::master), state.size());
  const UnitBuf shard = master_is_copy && !unit.frozen ? UnitBuf::master : UnitBuf::copy;
  copy = whole.empty() ? view_of<T>(at(shard), state.size()) : part_of(whole, state);
  if constexpr (std::is_same_v<A, T>) {
    if (master.empty()) master = copy;
    if (copy.empty()) copy = master;
  }
  set_gradients(at(UnitBuf::accumulator), at(UnitBuf::gradient));
  vectors = view_of<A>(at(UnitBuf::vectors), n - unit.vectors_begin);
  if (!unit.zero.gathers()) gathered_weights.fill(whole.empty() ? copy.data : whole.data);
  matrix_sums = !sums.empty() ? sums.data : unit.vectors_begin == 0 ? vectors.data : nullptr;
}

template <class T>
void RankUnit<T>::set_gradients(void* whole_unit, void* shard) {
  const auto set = [&]<class V>(View<V, 1>& all, View<V, 1>& own) {
    all = view_of<V>(whole_unit, local.elements);
    own = all.empty() ? view_of<V>(shard, state.size()) : part_of(all, state);
  };
  if (rounds_gradients())
    set(narrow_sums, narrow_gradient);
  else
    set(sums, gradient);
}

template <class T>
void RankUnit<T>::zero_gradients(Stream& stream) const {
  const auto zero = [&]<class V>(const View<V, 1>& buffer) {
    if (!buffer.empty()) fill_zero(stream, buffer.data, to_size(buffer.size()) * sizeof(V));
  };
  if (rounds_gradients())
    zero(narrow_sums.empty() ? narrow_gradient : narrow_sums);
  else
    zero(sums.empty() ? gradient : sums);
  zero(vectors);
}

template <class T>
void RankUnit<T>::convert_master(Stream& stream) const {
  if constexpr (!std::is_same_v<A, T>)
    if (!master_is_copy) convert<A, T>(stream, master, copy);
}

template <class T>
ParameterStorage<T>::ParameterStorage(Arena& arena, Stream& stream, const std::vector<LocalUnit>& units,
                                      const Precision& precision, StorageKind kind)
    : units_(units) {
  storage_.reserve(units_.size());
  for (const LocalUnit& unit : units_) storage_.emplace_back(arena, stream, unit, precision, kind);
}

template <class T>
void ParameterStorage<T>::zero_gradients(Stream& stream) const {
  for (const RankUnit<T>& unit : storage_) unit.zero_gradients(stream);
}

template <class T>
void ParameterStorage<T>::upload(Stream& stream, std::size_t u, std::int64_t begin, const std::vector<A>& values) {
  const RankUnit<T>& unit = storage_[u];
  if (unit.master_is_copy) {
    std::vector<T> rounded(values.size());
#pragma omp parallel for num_threads(stream.threads())
    for (std::size_t i = 0; i < values.size(); ++i) rounded[i] = T(values[i]);
    copy_to_device(stream, unit.copy.data + begin, rounded.data(), rounded.size() * sizeof(T));
    stream.synchronize();
    return;
  }
  copy_to_device(stream, unit.master.data + begin, values.data(), values.size() * sizeof(A));
  stream.synchronize();
}

template <class T>
void ParameterStorage<T>::share(Stream& stream, std::size_t u, Communicator& ranks) {
  const RankUnit<T>& unit = storage_[u];
  if (unit.master_is_copy)
    ranks.broadcast(stream, unit.copy, 0);
  else
    ranks.broadcast(stream, unit.master, 0);
  if (ranks.rank() > 0) unit.convert_master(stream);
  stream.synchronize();
}

template <class T>
template <class V>
void ParameterStorage<T>::draw(Stream& stream, std::size_t u, std::uint64_t seed, const Range& part,
                               const View<V, 1>& to) const {
  const LocalUnit& unit = units_[u];
  const std::vector<ElementRun> runs = runs_of(unit, part);
  for (std::size_t begin = 0, end = 0; begin < runs.size(); begin = end) {
    // Rows of one piece and length are drawn at once.
    const ElementRun& first = runs[begin];
    const auto alike = [&](const ElementRun& run) { return run.piece == first.piece && run.count == first.count; };
    for (end = begin + 1; end < runs.size() && alike(runs[end]);) ++end;
    const auto rows = static_cast<std::int64_t>(end - begin);
    const std::int64_t pitch = rows > 1 ? runs[begin + 1].global - first.global : 0;
    const Parameter& parameter = unit.parameters[first.piece->parameter];
    const View<V, 2> here(to.data + (first.local - part.begin), {{rows, first.count}});
    if (parameter.initial == Initial::uniform || parameter.initial == Initial::log_uniform)
      fill_uniform(stream, uniform_values(seed, parameter), first.global, pitch, here);
    else
      fill_normal(stream, initial_values(seed, unit.parameters[first.piece->parameter]), first.global, pitch, here);
  }
}

template <class T>
void ParameterStorage<T>::initialise(Stream& stream, std::uint64_t seed, bool adapters_only) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (adapters_only && !is_adapter(units_[u].kind)) continue;
    const RankUnit<T>& unit = storage_[u];
    if (unit.master_is_copy)
      draw(stream, u, seed, unit.state, unit.copy);
    else
      draw(stream, u, seed, unit.state, unit.master);
    unit.convert_master(stream);
  }
  stream.synchronize();
}

template <class T>
void ParameterStorage<T>::draw_whole(Stream& stream, std::size_t u, std::uint64_t seed, View<T, 1> to) const {
  fill_zero(stream, to.data, to_size(to.size()) * sizeof(T));
  draw(stream, u, seed, {0, units_[u].elements}, to);
  stream.synchronize();
}

template <class T>
void ParameterStorage<T>::update_copies(Stream& stream) {
  for (const RankUnit<T>& unit : storage_) unit.convert_master(stream);
  stream.synchronize();
}

FORGE_INSTANTIATE_CLASS(RankUnit);
FORGE_INSTANTIATE_CLASS(ParameterStorage);

}  // namespace forge
