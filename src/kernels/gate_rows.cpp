#include "device/parallel.hpp"
#include "kernels/math.hpp"
#include "kernels/moe.hpp"

namespace forge {

template <class A>
void sigmoid(Stream& stream, View<A, 1> x) {
  parallel_for(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t i) { x[i] = A(1) / (A(1) + math::exp(-x[i])); });
}

template <class T>
void gate_rows(Stream& stream, View<const T, 2> x, View<const acc_t<T>, 1> gate, View<T, 2> y) {
  using A = acc_t<T>;
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* from = x.row(r);
    T* to = y.row(r);
    const A g = gate[r];
    team.each(x.columns(), [=](std::int64_t j) { to[j] = T(g * A(from[j])); });
  });
}

template <class T>
void gate_rows_backward(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const acc_t<T>, 1> gate,
                        View<T, 2> dx, View<T, 1> d_logit) {
  using A = acc_t<T>;
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T *d = dy.row(r), *v = x.row(r);
    T* to = dx.row(r);
    const A g = gate[r];
    const A dot = team.template sum<A>(x.columns(), [=](std::int64_t j) { return A(d[j]) * A(v[j]); });
    team.each(x.columns(), [=](std::int64_t j) { to[j] = T(g * A(d[j])); });
    if (team.leads()) d_logit[r] = T(dot * g * (A(1) - g));
  });
}

template void sigmoid<double>(Stream&, View<double, 1>);
template void sigmoid<float>(Stream&, View<float, 1>);
#define FORGE_INSTANTIATE(T)                                                                                \
  template void gate_rows<T>(Stream&, View<const T, 2>, View<const acc_t<T>, 1>, View<T, 2>);               \
  template void gate_rows_backward<T>(Stream&, View<const T, 2>, View<const T, 2>, View<const acc_t<T>, 1>, \
                                      View<T, 2>, View<T, 1>);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
