#include "device/parallel.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/largest.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

namespace {

// Bytes of rows and of the codes that are left of them.
template <class T>
std::int64_t bytes_with_codes(const View<T, 2>& y, const RowAmaxes& amax) {
  return bytes_in(y) + (amax.codes.codes ? y.size() : 0);
}

}  // namespace

namespace {

// Each activation with its derivative, both of one value.
struct Gelu {  // x Φ(x)
  template <class A>
  FORGE_INLINE static A value(A x) {
    return A(0.5) * x * (A(1) + math::erf(x * A(0.70710678118654752440)));
  }
  template <class A>
  FORGE_INLINE static A slope(A x) {
    const A density = A(0.39894228040143267794) * math::exp(A(-0.5) * x * x);
    return A(0.5) * (A(1) + math::erf(x * A(0.70710678118654752440))) + x * density;
  }
};

struct GeluTanh {  // x (1 + tanh u) / 2, u = √(2/π) (x + 0.044715 x³)
  template <class A>
  FORGE_INLINE static A inner(A x) {
    return A(0.79788456080286535588) * (x + A(0.044715) * x * x * x);
  }
  template <class A>
  FORGE_INLINE static A value(A x) {
    return A(0.5) * x * (A(1) + math::tanh(inner(x)));
  }
  template <class A>
  FORGE_INLINE static A slope(A x) {
    const A t = math::tanh(inner(x));
    const A du = A(0.79788456080286535588) * (A(1) + A(3 * 0.044715) * x * x);
    return A(0.5) * (A(1) + t) + A(0.5) * x * (A(1) - t * t) * du;
  }
};

// h(up) = up of most gated layers, and its gradient from that of h.
struct PlainUp {
  template <class A>
  FORGE_INLINE static A up(A u) {
    return u;
  }
  template <class A>
  FORGE_INLINE static A up_backward(A, A d) {
    return d;
  }
};

// Gated layers: g(x); with it, d · g'(x).
struct SiluGate : PlainUp {  // x σ(x), g' = σ (1 + x (1 − σ))
  template <class A>
  FORGE_INLINE static A value(A x) {
    return x * math::sigmoid(x);
  }
  template <class A>
  FORGE_INLINE static A backward(A x, A d, A& value) {
    const A s = math::sigmoid(x);
    value = x * s;
    return d * s * (A(1) + x * (A(1) - s));
  }
};

struct GeluTanhGate : GeluTanh, PlainUp {
  template <class A>
  FORGE_INLINE static A backward(A x, A d, A& value) {
    const A t = math::tanh(inner(x));
    const A du = A(0.79788456080286535588) * (A(1) + A(3 * 0.044715) * x * x);
    value = A(0.5) * x * (A(1) + t);
    return d * (A(0.5) * (A(1) + t) + A(0.5) * x * (A(1) - t * t) * du);
  }
};

// x' σ(α x'), x' = min(x, limit), and u' + 1, u' = max(−limit, min(u, limit)). With s = σ(α x'), x < limit or at it:
//   g' = s (1 + α x' (1 − s)), h' = 1; beyond a limit both are 0. NaN stays NaN.
template <class A>
struct ClampedGate {
  A limit, alpha;

  FORGE_INLINE A value(A x) const {
    const A c = x > limit ? limit : x;
    return c * math::sigmoid(alpha * c);
  }
  FORGE_INLINE A backward(A x, A d, A& value) const {
    const A c = x > limit ? limit : x, s = math::sigmoid(alpha * c);
    value = c * s;
    return x > limit ? A(0) : d * s * (A(1) + alpha * c * (A(1) - s));
  }
  FORGE_INLINE A up(A u) const { return (u > limit ? limit : u < -limit ? -limit : u) + A(1); }
  FORGE_INLINE A up_backward(A u, A d) const { return u > limit || u < -limit ? A(0) : d; }
};

struct Relu2 {  // max(x, 0)²; NaN stays NaN
  template <class A>
  FORGE_INLINE static A value(A x) {
    return x < A(0) ? A(0) : x * x;
  }
  template <class A>
  FORGE_INLINE static A slope(A x) {
    return x < A(0) ? A(0) : A(2) * x;
  }
};

}  // namespace

template <class G, class T>
void gated_forward(Stream& stream, G g, View<const T, 2> gate_up, View<T, 2> act, const RowAmaxes& amax) {
  using A = acc_t<T>;
  const std::int64_t n = act.columns();
  parallel_rows(stream, act.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* gate = gate_up.row(r);
    map_and_measure(
        team, n, amax, r,
        [=](const T& gate_j, const T& up, T& out) {
          out = T(g.value(A(gate_j)) * g.up(A(up)));
          return magnitude(out);
        },
        gate, gate + n, act.row(r));
    leave_codes(team, n, amax.codes, r, act.row(r));
  });
}

template <class G, class T>
void gated_backward(Stream& stream, G g, View<const T, 2> gate_up, View<const T, 2> d_act, View<T, 2> d_gate_up,
                    const RowAmaxes& amax, View<T, 2> act) {
  using A = acc_t<T>;
  const std::int64_t n = d_act.columns();
  if (!act.empty()) {
    return parallel_rows(stream, d_act.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      const T* gate = gate_up.row(r);
      T* d_gate = d_gate_up.row(r);
      team.map(
          n,
          [=](const T& gate_j, const T& up_j, const T& d, T& d_gate_j, T& d_up, T& out) {
            const A u = g.up(A(up_j)), dy = A(d);
            A value;
            d_gate_j = T(g.backward(A(gate_j), dy * u, value));
            d_up = T(g.up_backward(A(up_j), dy * value));
            out = T(value * u);
          },
          gate, gate + n, d_act.row(r), d_gate, d_gate + n, act.row(r));
    });
  }
  parallel_rows(stream, d_act.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* gate = gate_up.row(r);
    T* d_gate = d_gate_up.row(r);
    map_and_measure(
        team, n, amax, r,
        [=](const T& gate_j, const T& up_j, const T& d, T& d_gate_j, T& d_up) {
          const A u = g.up(A(up_j)), dy = A(d);
          A value;
          d_gate_j = T(g.backward(A(gate_j), dy * u, value));
          d_up = T(g.up_backward(A(up_j), dy * value));
          return larger(magnitude(d_gate_j), magnitude(d_up));
        },
        gate, gate + n, d_act.row(r), d_gate, d_gate + n);
    leave_codes(team, 2 * n, amax.codes, r, d_gate);
  });
}

// f(the form of a gated layer)
template <class A, class F>
void with_gate(const Gate& gate, F f) {
  switch (gate.kind) {
    case Gate::silu:
      return f(SiluGate());
    case Gate::gelu_tanh:
      return f(GeluTanhGate());
    case Gate::clamped:
      return f(ClampedGate<A>{static_cast<A>(gate.limit), static_cast<A>(gate.alpha)});
  }
}

template <class T>
void swiglu_forward(Stream& stream, View<const T, 2> gate_up, View<T, 2> act, const RowAmaxes& amax, Gate gate) {
  note_rows(stream, "swiglu_forward", bytes_in(gate_up), bytes_with_codes(act, amax));
  with_gate<acc_t<T>>(gate, [&](auto g) { gated_forward(stream, g, gate_up, act, amax); });
}

template <class T>
void swiglu_backward(Stream& stream, View<const T, 2> gate_up, View<const T, 2> d_act, View<T, 2> d_gate_up,
                     const RowAmaxes& amax, View<T, 2> act, Gate gate) {
  note_rows(stream, "swiglu_backward", bytes_in(gate_up, d_act), bytes_with_codes(d_gate_up, amax) + bytes_in(act));
  with_gate<acc_t<T>>(gate, [&](auto g) { gated_backward(stream, g, gate_up, d_act, d_gate_up, amax, act); });
}

namespace {

template <class G, class T>
void weighted_gated_forward(Stream& stream, G g, View<const T, 2> gate_up, View<const acc_t<T>, 1> weights,
                            View<T, 2> act) {
  using A = acc_t<T>;
  const std::int64_t n = act.columns();
  parallel_rows(stream, act.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* gate = gate_up.row(r);
    const A weight = weights[r];
    team.map(
        n, [=](const T& gate_j, const T& up, T& out) { out = T(g.value(A(gate_j)) * g.up(A(up)) * weight); }, gate,
        gate + n, act.row(r));
  });
}

// Of a column: leaves the gradients of gate and up; returns the term of d_weights.
template <class G, class A>
struct WeightedSlope {
  G g;
  A weight;

  template <class T, class... Act>
  FORGE_INLINE A operator()(const T& gate_j, const T& up_j, const T& d, T& d_gate_j, T& d_up, Act&... act) const {
    const A u = g.up(A(up_j)), dy = A(d), weighted = dy * weight;
    A value;
    d_gate_j = T(g.backward(A(gate_j), weighted * u, value));
    d_up = T(g.up_backward(A(up_j), weighted * value));
    const A product = value * u;
    ((act = T(product * weight)), ...);
    return dy * product;
  }
};

template <class G, class T, class... Act>
FORGE_INLINE acc_t<T> weighted_slopes(Team team, const G& g, std::int64_t n, acc_t<T> weight, const T* gate, const T* d,
                                      T* d_gate, Act*... act) {
  using A = acc_t<T>;
  return team.template sum<A>(n, WeightedSlope<G, A>{g, weight}, gate, gate + n, d, d_gate, d_gate + n, act...);
}

// One pass: each term of d_weights falls off where the gradients of its column are written.
template <bool activates, class G, class T>
void weighted_gated_backward(Stream& stream, G g, View<const T, 2> gate_up, View<const acc_t<T>, 1> weights,
                             View<const T, 2> d_act, View<T, 2> d_gate_up, View<acc_t<T>, 1> d_weights,
                             View<T, 2> act) {
  using A = acc_t<T>;
  const std::int64_t n = d_act.columns();
  parallel_rows(stream, d_act.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T *const gate = gate_up.row(r), *const d = d_act.row(r);
    T *const d_gate = d_gate_up.row(r), *const out = act.row(r);
    const A weight = weights[r];
    const A sum = activates ? weighted_slopes<G, T>(team, g, n, weight, gate, d, d_gate, out)
                            : weighted_slopes<G, T>(team, g, n, weight, gate, d, d_gate);
    if (team.leads()) d_weights[r] = sum;
  });
}

}  // namespace

template <class T>
void weighted_swiglu_forward(Stream& stream, View<const T, 2> gate_up, View<const acc_t<T>, 1> weights, View<T, 2> act,
                             Gate gate) {
  note_rows(stream, "weighted_swiglu_forward", bytes_in(gate_up), bytes_in(act));
  with_gate<acc_t<T>>(gate, [&](auto g) { weighted_gated_forward(stream, g, gate_up, weights, act); });
}

template <class T>
void weighted_swiglu_backward(Stream& stream, View<const T, 2> gate_up, View<const acc_t<T>, 1> weights,
                              View<const T, 2> d_act, View<T, 2> d_gate_up, View<acc_t<T>, 1> d_weights, View<T, 2> act,
                              Gate gate) {
  note_rows(stream, "weighted_swiglu_backward", bytes_in(gate_up, d_act), bytes_in(d_gate_up, act));
  with_gate<acc_t<T>>(gate, [&](auto g) {
    const auto run =
        act.empty() ? &weighted_gated_backward<false, decltype(g), T> : &weighted_gated_backward<true, decltype(g), T>;
    run(stream, g, gate_up, weights, d_act, d_gate_up, d_weights, act);
  });
}

template <class F, class T>
void apply_forward(Stream& stream, View<const T, 2> x, View<T, 2> act, const RowAmaxes& amax) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    map_and_measure(
        team, n, amax, r,
        [=](const T& in, T& out) {
          out = T(F::value(A(in)));
          return magnitude(out);
        },
        x.row(r), act.row(r));
    leave_codes(team, n, amax.codes, r, act.row(r));
  });
}

template <class F, class T>
void apply_backward(Stream& stream, View<const T, 2> x, View<const T, 2> d_act, View<T, 2> dx, const RowAmaxes& amax,
                    View<T, 2> act) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  if (!act.empty()) {
    return parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      team.map(
          n,
          [=](const T& in, const T& d, T& slope, T& out) {
            const A x_j = A(in);
            slope = T(A(d) * F::slope(x_j));
            out = T(F::value(x_j));
          },
          x.row(r), d_act.row(r), dx.row(r), act.row(r));
    });
  }
  parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    map_and_measure(
        team, n, amax, r,
        [=](const T& in, const T& d, T& out) {
          out = T(A(d) * F::slope(A(in)));
          return magnitude(out);
        },
        x.row(r), d_act.row(r), dx.row(r));
    leave_codes(team, n, amax.codes, r, dx.row(r));
  });
}

template <class T>
void pointwise_forward(Stream& stream, Pointwise which, View<const T, 2> x, View<T, 2> act, const RowAmaxes& amax) {
  note_rows(stream, "pointwise_forward", bytes_in(x), bytes_with_codes(act, amax));
  switch (which) {
    case Pointwise::gelu:
      return apply_forward<Gelu>(stream, x, act, amax);
    case Pointwise::gelu_tanh:
      return apply_forward<GeluTanh>(stream, x, act, amax);
    case Pointwise::relu2:
      return apply_forward<Relu2>(stream, x, act, amax);
  }
}

template <class T>
void pointwise_backward(Stream& stream, Pointwise which, View<const T, 2> x, View<const T, 2> d_act, View<T, 2> dx,
                        const RowAmaxes& amax, View<T, 2> act) {
  note_rows(stream, "pointwise_backward", bytes_in(x, d_act), bytes_with_codes(dx, amax) + bytes_in(act));
  switch (which) {
    case Pointwise::gelu:
      return apply_backward<Gelu>(stream, x, d_act, dx, amax, act);
    case Pointwise::gelu_tanh:
      return apply_backward<GeluTanh>(stream, x, d_act, dx, amax, act);
    case Pointwise::relu2:
      return apply_backward<Relu2>(stream, x, d_act, dx, amax, act);
  }
}

FORGE_INSTANTIATE_FUNCTION(weighted_swiglu_forward);
FORGE_INSTANTIATE_FUNCTION(weighted_swiglu_backward);

FORGE_INSTANTIATE_FUNCTION(swiglu_forward);
FORGE_INSTANTIATE_FUNCTION(swiglu_backward);
FORGE_INSTANTIATE_FUNCTION(pointwise_forward);
FORGE_INSTANTIATE_FUNCTION(pointwise_backward);

}  // namespace forge
