#include "optim/elementwise.hpp"
#include "optim/rule.hpp"

namespace forge {

namespace {

// Stochastic gradient descent with heavy-ball momentum (Polyak 1964), as PyTorch computes it, and decoupled decay:
//   b ← μ b + g;  p ← p (1 − lr·decay) − lr · b
// M: the type of b.
template <class M, class T>
void update_with(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run) {
  using A = acc_t<T>;
  const A decay = A(1 - step.rate * run.rule.weight_decay), rate = A(step.rate);
  const A momentum = A(deck.momentum);
  const auto new_weight = [=] FORGE_LAMBDA(A g, A p, M & buffer) {
    const A b = momentum * A(buffer) + g;
    buffer = M(b);
    return p * decay - rate * b;
  };
  update_weights<M, 1>(stream, step, run, new_weight);
}

}  // namespace

template <class T>
void sgd(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run) {
  with_state_type(run, [&]<class M>(std::type_identity<M>) { update_with<M>(stream, deck, step, run); });
}
template void sgd(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<double>&);
template void sgd(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<float>&);
template void sgd(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<bf16>&);

}  // namespace forge
