#include "kernels/rows/rounded_sums.hpp"

#include "device/parallel.hpp"

namespace forge {

namespace {

// sums_i = R(value(i)), a number of the accumulation type.
template <class T, class F>
void round_each(Stream& stream, const Rounding& rounding, View<T, 1> sums, F value) {
  T* const to = sums.data;
  parallel_for(stream, sums.rows(), [=] FORGE_LAMBDA(std::int64_t i) { to[i] = kept_as<T>(rounding, i, value(i), 0); });
}

}  // namespace

template <class T>
void add_rounded(Stream& stream, const Rounding& rounding, View<const acc_t<T>, 1> x, View<T, 1> sums) {
  using A = acc_t<T>;
  const A* const in = x.data;
  const T* const before = sums.data;
  round_each(stream, rounding, sums, [=] FORGE_LAMBDA(std::int64_t i) { return A(before[i]) + in[i]; });
}

template <class T>
void set_rounded(Stream& stream, const Rounding& rounding, View<const acc_t<T>, 1> x, View<T, 1> sums) {
  const acc_t<T>* const in = x.data;
  round_each(stream, rounding, sums, [=] FORGE_LAMBDA(std::int64_t i) { return in[i]; });
}

template <class T>
void add_sums(Stream& stream, View<const T, 1> sums, View<acc_t<T>, 1> x) {
  using A = acc_t<T>;
  const T* const in = sums.data;
  A* const to = x.data;
  parallel_for(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t i) { to[i] += A(in[i]); });
}

FORGE_INSTANTIATE_FUNCTION(add_rounded);
FORGE_INSTANTIATE_FUNCTION(set_rounded);
FORGE_INSTANTIATE_FUNCTION(add_sums);

}  // namespace forge
