#pragma once

#include "nn/router.plan.hpp"

namespace forge {

// What layers and the step have for the whole run, once per rank.
template <class T>
struct RunBuffers {
  View<double, 1> scalars;         // (sources + 5) losses of a mixture's sources, then StepScalars of kernels.hpp
  View<double, 1> norm_partials;   // sum_partials
  View<acc_t<T>, 2> cosine, sine;  // (T, rotary entries of a head / 2)
  RouterState<T> routers;
  View<double, 2> mtp_sums;  // (mtp_depth, 2) of a step: losses, z

  void list(BufferLister& l) {
    l.add(scalars, "step scalars", l.c.sources + 5, 1);
    l.add(norm_partials, "gradient norm sums", sum_partials, 1);
    if (l.spec.rope()) {
      l.add(cosine, "rotary cosines", l.c.microbatch.sequence_tokens, l.spec.rotary_dim() / 2);
      l.add(sine, "rotary sines", l.c.microbatch.sequence_tokens, l.spec.rotary_dim() / 2);
    }
    if (l.spec.E() > 0) routers.list(l);
    if (l.spec.options.mtp_depth > 0) l.add(mtp_sums, "losses of depths", l.spec.options.mtp_depth, 2);
  }
};

}  // namespace forge
