#pragma once

#include "device/parallel.hpp"
#include "optim/update.hpp"

namespace forge {

// p ← new_weight(i, clip·g, p) of every element i of a run, and the copy of p in the compute type; nothing changes when
// scalars->finite is 0. new_weight may read and write element i of the optimizer's own state. Include it where kernels
// may stand (forge_device_sources).
template <class T, class F>
void update_weights(Stream& stream, const UpdateStep& step, const UpdateRun<T>& run, F new_weight) {
  using A = acc_t<T>;
  constexpr std::int64_t block = 4096;
  const View<const StepScalars, 1> scalars = step.scalars;
  const View<const A, 1> gradient = run.gradient;
  const View<A, 1> master = run.master;
  const View<T, 1> copy = run.copy;
  const std::int64_t n = master.rows();
  parallel_rows(stream, (n + block - 1) / block, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    if (scalars[0].finite == 0) return;
    const std::int64_t begin = b * block, width = n - begin < block ? n - begin : block;
    const A clip = A(scalars[0].clip_coefficient);
    const A* gs = gradient.data + begin;
    A* ps = master.data + begin;
    team.each(width, [=](std::int64_t i) { ps[i] = new_weight(begin + i, gs[i] * clip, ps[i]); });
    if (copy.empty()) return;
    T* ts = copy.data + begin;
    team.each(width, [=](std::int64_t i) { ts[i] = T(ps[i]); });
  });
}

}  // namespace forge
