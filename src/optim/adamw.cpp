#include "kernels/math.hpp"
#include "optim/adam.hpp"
#include "optim/elementwise.hpp"
#include "optim/rule.hpp"

namespace forge {

namespace {

// AdamW (Loshchilov & Hutter 2019) as PyTorch computes it:
//   m ← β1 m + (1−β1) g;  v ← β2 v + (1−β2) g²;  p ← p (1 − lr·decay);  p ← p − lr · m̂ / (√v̂ + ε)
//   m̂ = m / (1 − β1^t), v̂ = v / (1 − β2^t)
// M: the moments' type.
template <class M, class T>
void update_with(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run) {
  using A = acc_t<T>;
  const AdamConstants<A> k(deck, step, run.rule.weight_decay);
  const auto new_weight = [=] FORGE_LAMBDA(A g, A p, M & first, M & second) {
    const A m = A(first) + k.one_minus_beta1 * (g - A(first));
    const A v = k.beta2 * A(second) + k.one_minus_beta2 * g * g;
    first = M(m);
    second = M(v);
    return p * k.decay - k.step_size * (m / (math::sqrt(v) / k.root_bias2 + k.epsilon));
  };
  update_weights<M, 2>(stream, step, run, new_weight);
}

}  // namespace

template <class T>
void adamw(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run) {
  with_state_type(run, [&]<class M>(std::type_identity<M>) { update_with<M>(stream, deck, step, run); });
}
template void adamw(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<double>&);
template void adamw(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<float>&);
template void adamw(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<bf16>&);

}  // namespace forge
