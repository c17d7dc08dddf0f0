#include "parallel/storage.hpp"

#include "kernels/kernels.hpp"

namespace forge {

namespace {

template <class P>
View<P, 1> allocate(Arena& arena, Stream& stream, std::int64_t elements, Category category) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(P);
  void* p = arena.allocate(bytes, category);
  fill_zero(stream, p, bytes);
  return View<P, 1>(static_cast<P*>(p), {{elements}});
}

void* allocate_moment(Arena& arena, Stream& stream, std::int64_t elements, DType type) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(type);
  void* p = arena.allocate(bytes, Category::optimizer);
  fill_zero(stream, p, bytes);
  return p;
}

}  // namespace

template <class T>
ParameterStorage<T>::ParameterStorage(Arena& arena, Stream& stream, const std::vector<Unit>& units,
                                      const Precision& precision, StorageKind kind)
    : units_(units), precision_(precision) {
  using S = acc_t<T>;
  for (const auto& unit : units_) {
    UnitStorage<T> s;
    s.parameter = allocate<S>(arena, stream, unit.elements, Category::parameters);
    if constexpr (std::is_same_v<S, T>)
      s.copy = s.parameter;
    else
      s.copy = allocate<T>(arena, stream, unit.elements, Category::parameters);
    if (kind.gradients) s.gradient = allocate<S>(arena, stream, unit.elements, Category::gradients);
    if (kind.moments) {
      s.m = allocate_moment(arena, stream, unit.elements, precision.moment);
      s.v = allocate_moment(arena, stream, unit.elements, precision.moment);
    }
    storage_.push_back(s);
  }
}

template <class T>
View<acc_t<T>, 1> ParameterStorage<T>::master(std::size_t u, const Parameter& p) const {
  return storage_[u].parameter.slice(p.offset, p.offset + p.elements());
}

template <class T>
View<acc_t<T>, 1> ParameterStorage<T>::gradient(std::size_t u, const Parameter& p) const {
  return storage_[u].gradient.slice(p.offset, p.offset + p.elements());
}

template <class T>
void ParameterStorage<T>::zero_gradients(Stream& stream) {
  for (const auto& s : storage_)
    fill_zero(stream, s.gradient.data, static_cast<std::size_t>(s.gradient.size()) * sizeof(acc_t<T>));
}

template <class T>
void ParameterStorage<T>::initialise(Stream& stream, std::uint64_t seed) {
  using S = acc_t<T>;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    std::vector<S> values(static_cast<std::size_t>(units_[u].elements), S(0));
    for (const auto& p : units_[u].parameters) {
      S* to = values.data() + p.offset;
      const std::int64_t n = p.elements();
      const int threads = stream.threads();
#pragma omp parallel for num_threads(threads) schedule(static)
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<S>(initial_value(seed, p, i));
    }
    copy_to_device(stream, storage_[u].parameter.data, values.data(), values.size() * sizeof(S));
    stream.synchronize();
  }
  refresh_copies(stream);
}

template <class T>
void ParameterStorage<T>::refresh_copies(Stream& stream) {
  if constexpr (!std::is_same_v<acc_t<T>, T>)
    for (const auto& s : storage_) convert<acc_t<T>, T>(stream, s.parameter, s.copy);
}

template class ParameterStorage<double>;
template class ParameterStorage<float>;
template class ParameterStorage<bf16>;

}  // namespace forge
