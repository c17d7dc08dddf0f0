#include "device/parallel.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

template <class A>
void sigmoid(Stream& stream, View<A, 1> x) {
  note_rows(stream, "sigmoid", bytes_in(x), bytes_in(x));
  parallel_for(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t i) { x[i] = A(1) / (A(1) + math::exp(-x[i])); });
}

template <class T>
void gate_rows(Stream& stream, View<const T, 2> x, View<const acc_t<T>, 1> gate, View<T, 2> y) {
  note_rows(stream, "gate_rows", bytes_in(x), bytes_in(y));
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A g = gate[r];
    team.map(
        n, [=](const T& from, T& to) { to = T(g * A(from)); }, x.row(r), y.row(r));
  });
}

template <class T>
void gate_rows_backward(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const acc_t<T>, 1> gate,
                        View<T, 2> dx, View<T, 1> d_logit) {
  note_rows(stream, "gate_rows_backward", bytes_in(dy, x), bytes_in(dx));
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const auto d = team.row(n, dy.row(r));
    const A g = gate[r];
    const T* v = x.row(r);
    const A dot = team.template sum<A>(
        n, [=](const T& d_j, const T& v_j) { return A(d_j) * A(v_j); }, d, v);
    team.map(
        n, [=](const T& d_j, T& to) { to = T(g * A(d_j)); }, d, dx.row(r));
    if (team.leads()) d_logit[r] = T(dot * g * (A(1) - g));
  });
}

FORGE_INSTANTIATE_ACC_FUNCTION(sigmoid);
FORGE_INSTANTIATE_FUNCTION(gate_rows);
FORGE_INSTANTIATE_FUNCTION(gate_rows_backward);

}  // namespace forge
