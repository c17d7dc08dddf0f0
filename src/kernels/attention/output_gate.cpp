#include "kernels/attention/output_gate.hpp"

#include "device/parallel.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

template <class T>
void split_gates(Stream& stream, View<const T, 2> x, std::int64_t head_dim, View<T, 2> qkv, View<T, 2> gate) {
  note_rows(stream, "split_gates", bytes_in(x), bytes_in(qkv, gate));
  const std::int64_t q = gate.columns(), rest = qkv.columns() - q;
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* const from = x.row(r);
    T *const to = qkv.row(r), *const of_gate = gate.row(r);
    team.each(q, [=](std::int64_t j) {
      const std::int64_t at = j + quotient(j, head_dim) * head_dim;
      to[j] = from[at];
      of_gate[j] = from[at + head_dim];
    });
    team.each(rest, [=](std::int64_t j) { to[q + j] = from[2 * q + j]; });
  });
}

template <class T>
void join_gates(Stream& stream, View<const T, 2> d_qkv, View<const T, 2> d_gate, std::int64_t head_dim, View<T, 2> d) {
  note_rows(stream, "join_gates", bytes_in(d_qkv, d_gate), bytes_in(d));
  const std::int64_t q = d_gate.columns(), rest = d_qkv.columns() - q;
  parallel_rows(stream, d.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T *const from = d_qkv.row(r), *const of_gate = d_gate.row(r);
    T* const to = d.row(r);
    team.each(q, [=](std::int64_t j) {
      const std::int64_t at = j + quotient(j, head_dim) * head_dim;
      to[at] = from[j];
      to[at + head_dim] = of_gate[j];
    });
    team.each(rest, [=](std::int64_t j) { to[2 * q + j] = from[q + j]; });
  });
}

template <class T>
void gate_output(Stream& stream, View<const T, 2> o, View<const T, 2> gate, View<T, 2> y) {
  note_rows(stream, "gate_output", bytes_in(o, gate), bytes_in(y));
  using A = acc_t<T>;
  parallel_rows(stream, o.rows(), row_width<T>(o.columns()), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.map(
        o.columns(), [=](const T& x, const T& g, T& to) { to = T(A(x) * math::sigmoid(A(g))); }, o.row(r), gate.row(r),
        y.row(r));
  });
}

template <class T>
void gate_output_backward(Stream& stream, View<const T, 2> o, View<const T, 2> gate, View<T, 2> dy, View<T, 2> d_gate) {
  note_rows(stream, "gate_output_backward", bytes_in(o, gate, dy), bytes_in(dy, d_gate));
  using A = acc_t<T>;
  parallel_rows(stream, o.rows(), row_width<T>(o.columns()), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.map(
        o.columns(),
        [=](const T& x, const T& g, T& d, T& of_gate) {
          const A s = math::sigmoid(A(g)), slope = A(d);
          of_gate = T(slope * A(x) * s * (1 - s));
          d = T(slope * s);
        },
        o.row(r), gate.row(r), in_place(dy.row(r)), d_gate.row(r));
  });
}

FORGE_INSTANTIATE_FUNCTION(split_gates);
FORGE_INSTANTIATE_FUNCTION(join_gates);
FORGE_INSTANTIATE_FUNCTION(gate_output);
FORGE_INSTANTIATE_FUNCTION(gate_output_backward);

}  // namespace forge
