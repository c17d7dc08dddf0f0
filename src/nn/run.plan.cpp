#include "nn/run.plan.hpp"

namespace forge {

template <class T>
void RunBuffers<T>::list(BufferLister& l) {
  l.add(scalars, "step scalars", 5, 1);
  l.add(norm_partials, "gradient norm sums", sum_partials, 1);
  if (l.spec.rope()) {
    l.add(cosine, "rotary cosines", l.c.microbatch.sequence_tokens, l.spec.rotary_dim() / 2);
    l.add(sine, "rotary sines", l.c.microbatch.sequence_tokens, l.spec.rotary_dim() / 2);
  }
  if (l.spec.E() > 0) routers.list(l);
  if (l.spec.options.mtp_depth > 0) l.add(mtp_sums, "losses of depths", l.spec.options.mtp_depth, 2);
}

template struct RunBuffers<double>;
template struct RunBuffers<float>;
template struct RunBuffers<bf16>;

}  // namespace forge
