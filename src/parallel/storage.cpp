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
ParameterStorage<T>::ParameterStorage(Arena& arena, Stream& stream, const std::vector<LocalUnit>& units,
                                      const Precision& precision, const ZeroOfClass& zeros, StorageKind kind)
    : units_(units), precision_(precision), zero_(zeros) {
  for (const LocalUnit& unit : units_) {
    const Zero& zero = zero_of(zeros, unit);
    std::array<void*, static_cast<std::size_t>(UnitBuf::count_)> data{};
    UnitStorage<T> s;
    for (const UnitBufferSpec& buffer : unit_buffers(unit, precision, zero, kind)) {
      void*& p = data[static_cast<std::size_t>(buffer.id)];
      p = arena.allocate(buffer.bytes(), buffer.category);
      fill_zero(stream, p, buffer.bytes());
      if (buffer.id == UnitBuf::optimizer) s.optimizer.push_back({kind.optimizer[s.optimizer.size()], p});
    }
    auto at = [&](UnitBuf id) { return data[static_cast<std::size_t>(id)]; };
    s.state = zero.state_of(unit);
    const std::int64_t n = unit.elements, state = s.state.size();
    s.whole = view_of<T>(at(UnitBuf::whole), n);
    s.master = view_of<S>(at(UnitBuf::master), state);
    s.copy = s.whole.empty() ? view_of<T>(at(UnitBuf::copy), state) : part_of(s.whole, s.state);
    if constexpr (std::is_same_v<S, T>) {
      if (s.master.empty()) s.master = s.copy;
      if (s.copy.empty()) s.copy = s.master;
    }
    s.sums = view_of<S>(at(UnitBuf::accumulator), n);
    s.gradient = s.sums.empty() ? view_of<S>(at(UnitBuf::gradient), state) : part_of(s.sums, s.state);
    s.vectors = view_of<S>(at(UnitBuf::vectors), n - unit.vectors_begin);
    storage_.push_back(s);
  }
}

template <class T>
void ParameterStorage<T>::zero_gradients(Stream& stream) const {
  for (const auto& s : storage_)
    for (const View<S, 1>& buffer : {s.sums.empty() ? s.gradient : s.sums, s.vectors})
      if (!buffer.empty()) fill_zero(stream, buffer.data, static_cast<std::size_t>(buffer.size()) * sizeof(S));
}

template <class T>
void ParameterStorage<T>::upload(Stream& stream, std::size_t u, std::int64_t begin, const std::vector<S>& values) {
  copy_to_device(stream, storage_[u].master.data + begin, values.data(), values.size() * sizeof(S));
  stream.synchronize();
}

template <class T>
void ParameterStorage<T>::convert_master(Stream& stream, std::size_t u) {
  if constexpr (!std::is_same_v<S, T>) convert<S, T>(stream, storage_[u].master, storage_[u].copy);
  stream.synchronize();
}

template <class T>
void ParameterStorage<T>::initialise(Stream& stream, std::uint64_t seed) {
  for (std::size_t u = 0; u < units_.size(); ++u)
    fill(stream, u, [seed](const Parameter& p, const Range&) {
      return [seed, &p](std::int64_t element) { return initial_value(seed, p, element); };
    });
}

template <class T>
void ParameterStorage<T>::update_copies(Stream& stream) {
  if constexpr (!std::is_same_v<S, T>)
    for (const UnitStorage<T>& s : storage_) convert<S, T>(stream, s.master, s.copy);
  stream.synchronize();
}

template class ParameterStorage<double>;
template class ParameterStorage<float>;
template class ParameterStorage<bf16>;

}  // namespace forge
