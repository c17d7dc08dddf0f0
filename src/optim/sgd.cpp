#include "optim/rule.hpp"
#include "optim/update_elements.hpp"

namespace forge {

// Stochastic gradient descent with heavy-ball momentum (Polyak 1964), as PyTorch computes it, and decoupled decay:
//   b ← μ b + g;  p ← p (1 − lr·decay) − lr · b
template <class T>
void sgd(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run) {
  using A = acc_t<T>;
  const A decay = A(1 - step.rate * run.rule.weight_decay), rate = A(step.rate);
  const A momentum = A(deck.momentum);
  const auto new_weight = [=] FORGE_LAMBDA(A g, A p, A & buffer) {
    const A b = momentum * buffer + g;
    buffer = b;
    return p * decay - rate * b;
  };
  update_weights<1>(stream, step, run, new_weight);
}
FORGE_INSTANTIATE_FUNCTION(sgd);

}  // namespace forge
