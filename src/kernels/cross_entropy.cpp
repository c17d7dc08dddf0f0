#include <type_traits>

#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/math.hpp"

namespace forge {

// With x' = x − max x:  p_j = e^x'_j / Σ e^x',  lse = max x + log Σ e^x'. NaN anywhere makes all of them NaN. Where the
// gradient has the type of the logits, it holds e^x' until the sum is known.
namespace {

template <class T, class A>
FORGE_INLINE A keep(T& place, A value) {
  place = T(value);
  return value;
}

}  // namespace

template <class T>
void cross_entropy(Stream& stream, View<const acc_t<T>, 2> logits, View<const std::int32_t, 1> labels, double scale,
                   double z_coefficient, View<acc_t<T>, 1> loss, View<acc_t<T>, 1> z, View<T, 2> d_logits) {
  using A = acc_t<T>;
  const std::int64_t n = logits.columns();
  parallel_rows(stream, logits.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A* x = logits.row(r);
    const std::int64_t label = labels[r];
    T* d = d_logits.empty() ? nullptr : d_logits.row(r);
    if (label < 0) {
      if (d) team.each(n, [=](std::int64_t j) { d[j] = T(A(0)); });
      if (team.leads()) loss[r] = z[r] = A(0);
      return;
    }
    const A at_label = x[label];  // read before d_logits, which may be the same memory, is written
    const A largest = team.template max<A>(n, [=](std::int64_t j) { return x[j]; });
    constexpr bool keeps = std::is_same_v<T, A>;
    const A sum = keeps && d
                      ? team.template sum<A>(n, [=](std::int64_t j) { return keep(d[j], math::exp(x[j] - largest)); })
                      : team.template sum<A>(n, [=](std::int64_t j) { return math::exp(x[j] - largest); });
    const A log_sum = math::log(sum), lse = largest + log_sum;
    const A factor = (A(1) + A(2 * z_coefficient) * lse) / sum, to_gradient = A(scale);
    if (keeps && d)
      team.each(n, [=](std::int64_t j) { d[j] = T(A(d[j]) * factor * to_gradient); });
    else if (d)
      team.each(n, [=](std::int64_t j) { d[j] = T(math::exp(x[j] - largest) * factor * to_gradient); });
    if (team.leads()) {
      if (d) d[label] = T((math::exp(at_label - largest) * factor - A(1)) * to_gradient);
      loss[r] = log_sum - (at_label - largest);  // of small terms, where lse − logit may cancel
      z[r] = lse * lse;
    }
  });
}

#define FORGE_CROSS_ENTROPY(T)                                                                                  \
  template void cross_entropy<T>(Stream&, View<const acc_t<T>, 2>, View<const std::int32_t, 1>, double, double, \
                                 View<acc_t<T>, 1>, View<acc_t<T>, 1>, View<T, 2>);
FORGE_CROSS_ENTROPY(double)
FORGE_CROSS_ENTROPY(float)
FORGE_CROSS_ENTROPY(bf16)

}  // namespace forge
