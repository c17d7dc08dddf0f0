#include "optim/elementwise.hpp"
#include "optim/rule.hpp"

namespace forge {

namespace {

constexpr double muon_momentum = 0.95;

// u = (1−μ) g + μ b, of NorMuon u = b, which Newton and Schulz's iteration takes to the nearest orthogonal matrix, with
//   b ← μ b + (1−μ) g
// M: the type of b. A step that is not finite changes nothing and has u = 0.
template <class M, class T>
void prepare_with(Stream& stream, bool nesterov, const UpdateStep& step, const UpdateRun<T>& run, View<T, 1> values) {
  using A = acc_t<T>;
  const A one_minus_momentum = A(1 - muon_momentum), ahead = nesterov ? one_minus_momentum : A(0);
  const View<const StepScalars, 1> scalars = step.scalars;
  const A* const gs = run.gradient.data;
  M* const bs = run.template state_of<M>(0).data;
  T* const us = values.data;
  parallel_for(stream, values.rows(), [=] FORGE_LAMBDA(std::int64_t i) {
    if (scalars[0].finite == 0) {
      us[i] = T(A(0));
      return;
    }
    const A g = gs[i] * A(scalars[0].clip_coefficient), b = A(bs[i]) + one_minus_momentum * (g - A(bs[i]));
    bs[i] = M(b);
    us[i] = T(b + ahead * (g - b));
  });
}

}  // namespace

// Muon (Jordan et al. 2024; Liu et al. 2025, arXiv 2502.16982) as PyTorch computes it, with Nesterov's momentum.
template <class T>
void muon_prepare(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run,
                  View<T, 1> values) {
  const bool nesterov = deck.name == OptimizerName::muon;
  with_state_type(run, [&]<class M>(std::type_identity<M>) { prepare_with<M>(stream, nesterov, step, run, values); });
}

// p ← p (1 − lr·decay) − lr · scale · o, of the orthogonal matrix's elements o.
template <class T>
void muon_apply(Stream& stream, const OptimizerDeck&, const UpdateStep& step, const UpdateRun<T>& run,
                View<const T, 1> values, double scale) {
  using A = acc_t<T>;
  const A decay = A(1 - step.rate * run.rule.weight_decay), rate = A(step.rate * scale);
  const View<const StepScalars, 1> scalars = step.scalars;
  const View<A, 1> master = run.master;
  const View<T, 1> copy = run.copy;
  A* const left = step.leaves ? run.gradient.data : nullptr;
  constexpr std::int64_t block = 4096;
  const std::int64_t n = master.rows();
  parallel_rows(stream, (n + block - 1) / block, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    if (scalars[0].finite == 0) return;
    const std::int64_t begin = b * block, width = n - begin < block ? n - begin : block;
    const auto new_weight = [=](const T& o, A& p) { p = p * decay - rate * A(o); };
    const T* const os = values.data + begin;
    A* const ps = master.data + begin;
    if (left)
      return team.each(width, [=](std::int64_t j) {
        const A before = ps[j];
        new_weight(os[j], ps[j]);
        if (!copy.empty()) copy[begin + j] = T(ps[j]);
        left[begin + j] = ps[j] - before;
      });
    if (copy.empty())
      team.map(width, new_weight, os, in_place(ps));
    else
      team.map(
          width,
          [=](const T& o, A& p, T& c) {
            new_weight(o, p);
            c = T(p);
          },
          os, in_place(ps), copy.data + begin);
  });
}

#define FORGE_INSTANTIATE(T)                                                                                        \
  template void muon_prepare(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<T>&, View<T, 1>);    \
  template void muon_apply(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<T>&, View<const T, 1>, \
                           double);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
