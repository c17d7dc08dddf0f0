#include <cmath>

#include "kernels/rows/math.hpp"
#include "optim/rule.hpp"
#include "optim/update_elements.hpp"

namespace forge {

namespace {

// Fraction of an update in the averages: the square of its rate over the sum of the squares of all so far, with the
// rates of warm-up, s / W of the full one, and behind it.
double average_fraction(std::int64_t update, std::int64_t warmup) {
  const auto t = static_cast<double>(update), W = static_cast<double>(warmup);
  if (t <= W) return 6 * t / ((t + 1) * (2 * t + 1));
  const double of_warmup = W > 0 ? (W + 1) * (2 * W + 1) / (6 * W) : 0;
  return 1 / (of_warmup + t - W);
}

}  // namespace

// Schedule-free AdamW (Defazio et al. 2024, arXiv 2405.15682). The weights y are trained, z follows the gradients, the
// averages x are used. d = z − y is kept instead of z, so that all begins with zeros:
//   v ← β2 v + (1−β2) g²;  n = g / (√(v / (1 − β2^t)) + ε) + decay · y
//   z ← z − lr n;  x ← (1−c) x + c z;  y ← (1−β1) z + β1 x
// which is
//   y ← y + c d + lr (β1 (1−c) − 1) n;  d ← (1−c) (d − lr β1 n);  x = y + (1 − 1/β1) d
template <class T>
void schedule_free(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run) {
  using A = acc_t<T>;
  const double fraction = average_fraction(step.number, deck.warmup_steps);
  const A c = A(fraction), one_minus_c = A(1 - fraction);
  const A to_y = A(step.rate * (deck.beta1 * (1 - fraction) - 1)), to_d = A(step.rate * deck.beta1);
  const A decay = A(run.rule.weight_decay), epsilon = A(deck.epsilon);
  const A beta2 = A(deck.beta2), one_minus_beta2 = A(1 - deck.beta2);
  const A root_bias2 = A(std::sqrt(1 - std::pow(deck.beta2, static_cast<double>(step.number))));
  const auto new_weight = [=] FORGE_LAMBDA(A g, A y, A & second, A & lead) {
    const A v = beta2 * second + one_minus_beta2 * g * g, d = lead;
    const A n = g / (math::sqrt(v) / root_bias2 + epsilon) + decay * y;
    second = v;
    lead = one_minus_c * (d - to_d * n);
    return y + c * d + to_y * n;
  };
  update_weights<2>(stream, step, run, new_weight);
}

template <class A>
void schedule_free_averages(Stream& stream, const OptimizerDeck& deck, View<const A, 1> trained, View<const A, 1> lead,
                            View<A, 1> averages) {
  const A factor = A(1 - 1 / deck.beta1);
  parallel_for(stream, averages.rows(),
               [=] FORGE_LAMBDA(std::int64_t i) { averages[i] = trained[i] + factor * lead[i]; });
}

template <class A>
void exchange_weights(Stream& stream, View<A, 1> trained, View<A, 1> averages) {
  A *const xs = trained.data, *const ys = averages.data;
  parallel_for(stream, trained.rows(), [=] FORGE_LAMBDA(std::int64_t i) {
    const A value = xs[i];
    xs[i] = ys[i];
    ys[i] = value;
  });
}

FORGE_INSTANTIATE_FUNCTION(schedule_free);
FORGE_INSTANTIATE_ACC_FUNCTION(schedule_free_averages);
FORGE_INSTANTIATE_ACC_FUNCTION(exchange_weights);

}  // namespace forge
