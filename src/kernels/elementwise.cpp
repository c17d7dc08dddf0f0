#include "device/parallel.hpp"
#include "kernels/assign.hpp"
#include "kernels/kernels.hpp"

namespace forge {

template <class From, class To>
void convert(Stream& stream, View<const From, 1> from, View<To, 1> to) {
  const From* in = from.data;
  To* out = to.data;
  parallel_for(stream, from.rows(), [=] FORGE_LAMBDA(std::int64_t i) { assign(out[i], in[i]); });
}

template <class T>
void copy_rows(Stream& stream, View<const T, 2> from, View<T, 2> to) {
  const std::int64_t n = from.columns();
  parallel_rows(stream, from.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* in = from.row(r);
    T* out = to.row(r);
    team.each(n, [=](std::int64_t j) { assign(out[j], in[j]); });
  });
}

template <class From, class To>
void convert_rows(Stream& stream, View<const From, 2> from, View<To, 2> to) {
  const std::int64_t n = from.columns();
  parallel_rows(stream, from.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const From* in = from.row(r);
    To* out = to.row(r);
    team.each(n, [=](std::int64_t j) { assign(out[j], in[j]); });
  });
}

template <class T>
void accumulate(Stream& stream, View<const T, 2> x, View<acc_t<T>, 2> y) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* in = x.row(r);
    A* out = y.row(r);
    team.each(n, [=](std::int64_t j) { out[j] += A(in[j]); });
  });
}

template <class T>
void add(Stream& stream, View<const T, 1> x, View<T, 1> y) {
  using A = acc_t<T>;
  const T* in = x.data;
  T* out = y.data;
  parallel_for(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t i) { out[i] = T(A(out[i]) + A(in[i])); });
}

template <class T>
void add_bias(Stream& stream, View<const T, 1> bias, View<T, 2> x) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  const T* b = bias.data;
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    T* to = x.row(r);
    team.each(n, [=](std::int64_t j) { to[j] = T(A(to[j]) + A(b[j])); });
  });
}

#define FORGE_CONVERT(From)                                                           \
  template void convert<From, double>(Stream&, View<const From, 1>, View<double, 1>); \
  template void convert<From, float>(Stream&, View<const From, 1>, View<float, 1>);   \
  template void convert<From, bf16>(Stream&, View<const From, 1>, View<bf16, 1>);
FORGE_COMPUTE_TYPES(FORGE_CONVERT)

template void convert_rows<double, double>(Stream&, View<const double, 2>, View<double, 2>);
template void convert_rows<float, float>(Stream&, View<const float, 2>, View<float, 2>);
template void convert_rows<bf16, bf16>(Stream&, View<const bf16, 2>, View<bf16, 2>);
template void convert_rows<bf16, float>(Stream&, View<const bf16, 2>, View<float, 2>);
template void convert_rows<float, bf16>(Stream&, View<const float, 2>, View<bf16, 2>);

#define FORGE_ELEMENTWISE(T)                                                 \
  template void copy_rows<T>(Stream&, View<const T, 2>, View<T, 2>);         \
  template void accumulate<T>(Stream&, View<const T, 2>, View<acc_t<T>, 2>); \
  template void add<T>(Stream&, View<const T, 1>, View<T, 1>);               \
  template void add_bias<T>(Stream&, View<const T, 1>, View<T, 2>);
FORGE_COMPUTE_TYPES(FORGE_ELEMENTWISE)

}  // namespace forge
