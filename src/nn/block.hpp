#pragma once

#include "nn/attend.hpp"
#include "nn/block.plan.hpp"

namespace forge {

// One transformer block:  h = x + attention(norm1(x));  out = h + feed_forward(norm2(h))
// where norms stand before; where they stand behind (OLMo 2, arXiv:2501.00656)
//                         h = x + norm1(attention(x));  out = h + norm2(feed_forward(h))
// and where both do (Gemma 2, arXiv:2408.00118), each result is normalised, too.
template <class T>
struct Block {
  BlockPass<T> p;
  BlockBuffers<T> b;              // what the block saves; in backward also what is recomputed, and gradients for W
  BlockParameters<const T> w{};   // none in W
  BlockParameters<acc_t<T>> g{};  // none in forward

  // out(S,C): where the next block's input, or the head's, lives.
  void forward(View<T, 2> out);
  // Recomputes what the recompute policy didn't save.
  void recompute();
  // B: dx(S,C) from d_out(S,C), and the gradients of the norms.
  void backward_input(View<const T, 2> d_out, View<T, 2> dx) const;
  // W: gradients of matrices and biases, from what B left; d_out as B had it.
  void backward_weight(View<const T, 2> d_out) const;
  // Both at once: rows of tp ranks that W reads, and B's sums over tp, travel behind products.
  void backward(View<const T, 2> d_out, View<T, 2> dx) const;

 private:
  void recompute_whole();
  // The feed-forward layer's input, in backward.
  View<const T, 2> second_input() const { return p.spec().norms_before() ? b.n2 : b.attend(p.spec(), p.layer).h; }
  RowOperand<T> forward_to_norm2(const BlockForward<T>& s) const;
  void norm_behind(View<const T, 2> result, View<T, 2> out) const;
  void backward_feed_forward(View<const T, 2> d_out, const BlockWeight<T>* weights) const;
};

}  // namespace forge
