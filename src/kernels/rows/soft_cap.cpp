#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

template <class A>
void soft_cap(Stream& stream, View<A, 2> x, double cap) {
  note_rows(stream, "soft_cap", bytes_in(x), bytes_in(x));
  const std::int64_t n = x.columns();
  const A c = A(cap);
  parallel_rows(stream, x.rows(), row_width<A>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.map(
        n, [=](A& x_j) { x_j = c * math::tanh(x_j / c); }, in_place(x.row(r)));
  });
}

template <class T>
void soft_cap_backward(Stream& stream, View<const acc_t<T>, 2> y, double cap, View<T, 2> d) {
  note_rows(stream, "soft_cap_backward", bytes_in(y, d), bytes_in(d));
  using A = acc_t<T>;
  const std::int64_t n = y.columns();
  const A c = A(cap);
  parallel_rows(stream, y.rows(), row_width<A>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.map(
        n,
        [=](const A& y_j, T& d_j) {
          const A fraction = y_j / c;
          d_j = T(A(d_j) * (A(1) - fraction * fraction));
        },
        y.row(r), in_place(d.row(r)));
  });
}

FORGE_INSTANTIATE_ACC_FUNCTION(soft_cap);

FORGE_INSTANTIATE_FUNCTION(soft_cap_backward);

}  // namespace forge
