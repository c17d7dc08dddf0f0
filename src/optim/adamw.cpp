#include "kernels/rows/math.hpp"
#include "optim/adam.hpp"
#include "optim/rule.hpp"
#include "optim/update_elements.hpp"

namespace forge {

// AdamW (Loshchilov & Hutter 2019) as PyTorch computes it:
//   m ← β1 m + (1−β1) g;  v ← β2 v + (1−β2) g²;  p ← p (1 − lr·decay);  p ← p − lr · m̂ / (√v̂ + ε)
//   m̂ = m / (1 − β1^t), v̂ = v / (1 − β2^t)
template <class T>
void adamw(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run) {
  using A = acc_t<T>;
  const AdamConstants<A> k(deck, step, run.rule.weight_decay);
  const auto new_weight = [=] FORGE_LAMBDA(A g, A p, A & first, A & second) {
    const A m = first + k.one_minus_beta1 * (g - first);
    const A v = k.beta2 * second + k.one_minus_beta2 * g * g;
    first = m;
    second = v;
    return p * k.decay - k.step_size * (m / (math::sqrt(v) / k.root_bias2 + k.epsilon));
  };
  update_weights<2>(stream, step, run, new_weight);
}
template void adamw(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<double>&);
template void adamw(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<float>&);
template void adamw(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<bf16>&);

}  // namespace forge
