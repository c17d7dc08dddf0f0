#pragma once

#include "nn/router.plan.hpp"

namespace forge {

// What layers and the step have for the whole run, once per rank.
template <class T>
struct RunBuffers {
  View<double, 1> scalars;         // StepScalars of kernels.hpp
  View<double, 1> norm_partials;   // sum_partials
  View<acc_t<T>, 2> cosine, sine;  // (T, rotary entries of a head / 2)
  RouterState<T> routers;
  View<double, 2> mtp_sums;  // (mtp_depth, 2) of a step: losses, z

  void list(BufferLister& l);
};

}  // namespace forge
