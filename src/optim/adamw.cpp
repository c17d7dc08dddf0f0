#include <cmath>

#include "kernels/rows/math.hpp"
#include "optim/rule.hpp"
#include "optim/update_elements.hpp"

namespace forge {

// AdamW (Loshchilov & Hutter 2019) as PyTorch computes it:
//   m ← β1 m + (1−β1) g;  v ← β2 v + (1−β2) g²;  p ← p (1 − lr·decay);  p ← p − lr · m̂ / (√v̂ + ε)
//   m̂ = m / (1 − β1^t), v̂ = v / (1 − β2^t)
template <class T>
void adamw(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run) {
  using A = acc_t<T>;
  const auto t = static_cast<double>(step.number);
  // Each rounded once from double, as PyTorch does.
  const A decay = A(1 - step.rate * run.rule.weight_decay), epsilon = A(deck.epsilon);
  const A one_minus_beta1 = A(1 - deck.beta1), beta2 = A(deck.beta2), one_minus_beta2 = A(1 - deck.beta2);
  const A step_size = A(step.rate / (1 - std::pow(deck.beta1, t)));
  const A root_bias2 = A(std::sqrt(1 - std::pow(deck.beta2, t)));
  const auto new_weight = [=] FORGE_LAMBDA(A g, A p, A & first, A & second) {
    const A m = first + one_minus_beta1 * (g - first);
    const A v = beta2 * second + one_minus_beta2 * g * g;
    first = m;
    second = v;
    return p * decay - step_size * (m / (math::sqrt(v) / root_bias2 + epsilon));
  };
  update_weights<2>(stream, step, run, new_weight);
}
FORGE_INSTANTIATE_FUNCTION(adamw);

}  // namespace forge
