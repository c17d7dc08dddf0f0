#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/types.hpp"

// Number types for plain references: one reference, written as a template, gives values in double, derivatives along a
// direction (Dual), and a bound of the kernel's rounding errors (Tracked).

namespace forge::reference {

// Forward-mode differentiation: value and directional derivative.
struct Dual {
  double v = 0, d = 0;
  Dual() = default;
  Dual(double value, double derivative = 0) : v(value), d(derivative) {}
};
inline Dual operator+(Dual a, Dual b) {
  return {a.v + b.v, a.d + b.d};
}
inline Dual operator-(Dual a, Dual b) {
  return {a.v - b.v, a.d - b.d};
}
inline Dual operator*(Dual a, Dual b) {
  return {a.v * b.v, a.d * b.v + a.v * b.d};
}
inline Dual operator/(Dual a, Dual b) {
  return {a.v / b.v, (a.d - a.v / b.v * b.d) / b.v};
}
inline Dual sqrt(Dual a) {
  return {std::sqrt(a.v), a.d / (2 * std::sqrt(a.v))};
}
inline Dual exp(Dual a) {
  return {std::exp(a.v), a.d * std::exp(a.v)};
}
inline Dual log(Dual a) {
  return {std::log(a.v), a.d / a.v};
}
inline Dual tanh(Dual a) {
  return {std::tanh(a.v), a.d * (1 - std::tanh(a.v) * std::tanh(a.v))};
}
inline Dual erf(Dual a) {
  return {std::erf(a.v), a.d * 1.1283791670955126 * std::exp(-a.v * a.v)};
}
inline double value(Dual a) {
  return a.v;
}
inline double value(double a) {
  return a;
}

// Unit roundoff of a type: half the distance of 1 to its neighbour.
template <class T>
inline constexpr double roundoff = std::numeric_limits<T>::epsilon() / 2;
template <>
inline constexpr double roundoff<bf16> = 1.0 / 256;

// A running error bound (Higham, Accuracy and Stability, §3.3): |computed − v| <= e when every operation is rounded in
// A. Functions are taken as exact to 2 ulp, as CUDA and kernels/rows/math.hpp promise.
template <class A>
struct Tracked {
  static constexpr double u = roundoff<A>;
  double v = 0, e = 0;
  Tracked() = default;
  Tracked(double exact) : v(exact) {}
  Tracked(double value, double error) : v(value), e(error) {}
};
template <class A>
Tracked<A> rounded(double v, double inherited, double steps = 1) {
  return {v, inherited * (1 + steps * roundoff<A>)+steps * roundoff<A> * std::abs(v) +
                 std::numeric_limits<A>::denorm_min()};
}
template <class A>
Tracked<A> operator+(Tracked<A> a, Tracked<A> b) {
  return rounded<A>(a.v + b.v, a.e + b.e);
}
template <class A>
Tracked<A> operator-(Tracked<A> a, Tracked<A> b) {
  return rounded<A>(a.v - b.v, a.e + b.e);
}
template <class A>
Tracked<A> operator*(Tracked<A> a, Tracked<A> b) {
  return rounded<A>(a.v * b.v, std::abs(a.v) * b.e + std::abs(b.v) * a.e + a.e * b.e);
}
template <class A>
Tracked<A> operator/(Tracked<A> a, Tracked<A> b) {
  return rounded<A>(a.v / b.v, (a.e + std::abs(a.v / b.v) * b.e) / (std::abs(b.v) - b.e));
}
template <class A>
Tracked<A> sqrt(Tracked<A> a) {
  return rounded<A>(std::sqrt(a.v), a.e / std::sqrt(a.v));
}
template <class A>
Tracked<A> exp(Tracked<A> a) {
  return rounded<A>(std::exp(a.v), std::exp(a.v) * std::expm1(a.e), 4);
}
template <class A>
Tracked<A> log(Tracked<A> a) {
  return rounded<A>(std::log(a.v), a.e / (a.v - a.e), 4);
}
template <class A>
Tracked<A> tanh(Tracked<A> a) {
  return rounded<A>(std::tanh(a.v), a.e, 4);
}
template <class A>
Tracked<A> erf(Tracked<A> a) {
  return rounded<A>(std::erf(a.v), 1.13 * a.e, 4);
}
template <class A>
double value(Tracked<A> a) {
  return a.v;
}

// A number of the program's text or of its arguments, rounded to A by the kernel.
inline void set_constant(double& to, double c) {
  to = c;
}
inline void set_constant(Dual& to, double c) {
  to = c;
}
template <class A>
void set_constant(Tracked<A>& to, double c) {
  to = {c, roundoff<A> * std::abs(c)};
}
template <class N>
N constant(double c) {
  N to;
  set_constant(to, c);
  return to;
}

// Σ_j f(j); the bound holds for any order of the additions.
template <class N, class F>
N sum(std::int64_t n, const F& f) {
  N total = 0.0;
  for (std::int64_t j = 0; j < n; ++j) total = total + f(j);
  return total;
}
template <class N, class F>
requires(N::u > 0) N sum(std::int64_t n, const F& f) {
  double v = 0, e = 0, magnitude = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    const N x = f(j);
    v += x.v;
    e += x.e;
    magnitude += std::abs(x.v) + x.e;
  }
  return {v, e + static_cast<double>(n) * N::u * magnitude};
}

// The largest difference between a result of type T and the reference: the kernel's rounding, the reference's (in
// double), and the last rounding to T.
template <class T, class A>
double tolerance(Tracked<A> x) {
  return x.e * (1 + roundoff<double> / roundoff<A>)+roundoff<T> * (std::abs(x.v) + x.e);
}

}  // namespace forge::reference
