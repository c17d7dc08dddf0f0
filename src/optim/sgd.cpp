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
  const A decay = A(1 - step.rate * (run.decays ? deck.weight_decay : 0)), rate = A(step.rate);
  const A momentum = A(deck.momentum);
  M* const bs = run.template state_of<M>(0).data;
  update_weights(stream, step, run, [=] FORGE_LAMBDA(std::int64_t i, A g, A p) {
    const A b = momentum * A(bs[i]) + g;
    bs[i] = M(b);
    return p * decay - rate * b;
  });
}

}  // namespace

template <class T>
void sgd(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run) {
  if constexpr (!std::is_same_v<T, double>)
    if (run.state[0].type == DType::bf16) return update_with<bf16>(stream, deck, step, run);
  update_with<acc_t<T>>(stream, deck, step, run);
}
template void sgd(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<double>&);
template void sgd(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<float>&);
template void sgd(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<bf16>&);

}  // namespace forge
