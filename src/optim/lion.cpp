#include "optim/rule.hpp"
#include "optim/update_elements.hpp"

namespace forge {

// Lion (Chen et al. 2023, arXiv 2302.06675, algorithm 2) with decoupled decay:
//   c = β1 m + (1−β1) g;  p ← p (1 − lr·decay) − lr · sign(c);  m ← β2 m + (1−β2) g        sign(0) = 0
template <class T>
void lion(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run) {
  using A = acc_t<T>;
  const A decay = A(1 - step.rate * run.rule.weight_decay), rate = A(step.rate);
  const A one_minus_beta1 = A(1 - deck.beta1), one_minus_beta2 = A(1 - deck.beta2);
  const auto new_weight = [=] FORGE_LAMBDA(A g, A p, A & moment) {
    const A m = moment, c = m + one_minus_beta1 * (g - m);
    moment = m + one_minus_beta2 * (g - m);
    const A sign = A(int(c > 0) - int(c < 0));
    return p * decay - rate * sign;
  };
  update_weights<1>(stream, step, run, new_weight);
}
FORGE_INSTANTIATE_FUNCTION(lion);

}  // namespace forge
