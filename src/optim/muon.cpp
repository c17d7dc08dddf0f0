#include "optim/rule.hpp"
#include "optim/update_elements.hpp"

namespace forge {

namespace {

constexpr double muon_momentum = 0.95;

// Elements of prepare_with() from `begin` of the run on, where gs, bs and us begin: f(g, b, u, the number that rounds
// b).
template <class M, class G, class T, class F>
FORGE_INLINE void prepare_part(Team team, std::int64_t begin, std::int64_t n, const G* gs, M* bs, T* us,
                               const Rounding& rounding, F f) {
  if constexpr (std::is_same_v<M, acc_t<T>>) {
    team.map(
        n, [=](const G& g, M& b, T& u) { f(g, b, u, 0); }, gs, in_place(bs), us);
  } else {
    BlockDraws<1> draws;
    draws.fill(team, 0, rounding, 0, begin, n);
    team.map(
        n, [=](const G& g, M& b, T& u, const std::uint16_t& random) { f(g, b, u, random); }, gs, in_place(bs), us,
        draws.row(0));
  }
}

// u = (1−μ) g + μ b, of NorMuon u = b, which Newton and Schulz's iteration takes to the nearest orthogonal matrix, with
//   b ← μ b + (1−μ) g
// M, G: the types of b and g; u has what b is before it is rounded. A step that is not finite changes nothing and has
// u = 0.
template <class M, class G, class T>
void prepare_with(Stream& stream, bool nesterov, const UpdateStep& step, const UpdateArgs<T>& run, View<T, 1> values) {
  using A = acc_t<T>;
  const A one_minus_momentum = A(1 - muon_momentum), ahead = nesterov ? one_minus_momentum : A(0);
  const View<const StepScalars, 1> scalars = step.scalars;
  const G* const gs = run.template gradients<G>();
  M* const bs = run.template state_of<M>(0).data;
  T* const us = values.data;
  const Rounding rounding(run.place, step.number);
  const std::int64_t all = values.rows();
  parallel_rows(stream, (all + rounding_block - 1) / rounding_block, [=] FORGE_LAMBDA(std::int64_t block, Team team) {
    const std::int64_t begin = block * rounding_block, n = all - begin < rounding_block ? all - begin : rounding_block;
    if (scalars[0].finite == 0)
      return team.map(
          n, [](T& u) { u = T(A(0)); }, us + begin);
    const A clip = A(scalars[0].clip_coefficient);
    const auto prepared = [=](const G& g_i, M& b_i, T& u, std::uint16_t random) {
      const A g = A(g_i) * clip, b = A(b_i) + one_minus_momentum * (g - A(b_i));
      b_i = rounded<M>(b, random);
      u = T(b + ahead * (g - b));
    };
    prepare_part(team, begin, n, gs + begin, bs + begin, us + begin, rounding, prepared);
  });
}

// Elements of apply_with() from `begin` of the run on: os, ps, copy (null: none) and left (null) begin there.
template <class W, class G, class T, class F>
FORGE_INLINE void apply_part(Team team, std::int64_t begin, std::int64_t n, const T* os, W* ps, T* copy, G* left,
                             const Rounding& rounding, F new_weight) {
  using A = acc_t<T>;
  if constexpr (!std::is_same_v<W, A>) {
    BlockDraws<1> draws;
    draws.fill(team, 0, rounding, weight_draw, begin, n);
    if (left)
      team.map(
          n,
          [=](const T& o, W& p, const std::uint16_t& random, G& l) {
            const A before = A(p);
            p = rounded<W>(new_weight(o, before), random);
            l = G(A(p) - before);
          },
          os, in_place(ps), draws.row(0), left);
    else
      team.map(
          n, [=](const T& o, W& p, const std::uint16_t& random) { p = rounded<W>(new_weight(o, A(p)), random); }, os,
          in_place(ps), draws.row(0));
  } else if (left) {
    team.each(n, [=](std::int64_t j) {
      const A before = ps[j];
      ps[j] = new_weight(os[j], before);
      if (copy) copy[j] = T(ps[j]);
      left[j] = G(ps[j] - before);
    });
  } else if (copy) {
    team.map(
        n,
        [=](const T& o, A& p, T& c) {
          p = new_weight(o, p);
          c = T(p);
        },
        os, in_place(ps), copy);
  } else {
    team.map(
        n, [=](const T& o, A& p) { p = new_weight(o, p); }, os, in_place(ps));
  }
}

// p ← p (1 − lr·decay) − lr · scale · o, of the orthogonal matrix's elements o. W, G: the types of master weights and
// gradient.
template <class W, class G, class T>
void apply_with(Stream& stream, const UpdateStep& step, const UpdateArgs<T>& run, View<const T, 1> values,
                double scale) {
  using A = acc_t<T>;
  const A decay = A(1 - step.rate * run.rule.weight_decay), rate = A(step.rate * scale);
  const View<const StepScalars, 1> scalars = step.scalars;
  W* const weights = run.template weights<W>();
  T* const copy = run.master.empty() ? nullptr : run.copy.data;
  G* const left = step.leaves ? run.template gradients<G>() : nullptr;
  const Rounding rounding(run.place, step.number);
  constexpr std::int64_t block = rounding_block;
  const std::int64_t n = run.size();
  parallel_rows(stream, (n + block - 1) / block, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    if (scalars[0].finite == 0) return;
    const std::int64_t begin = b * block, width = n - begin < block ? n - begin : block;
    apply_part<W, G, T>(team, begin, width, values.data + begin, weights + begin, copy ? copy + begin : nullptr,
                        left ? left + begin : nullptr, rounding,
                        [=](const T& o, A p) { return p * decay - rate * A(o); });
  });
}

}  // namespace

// Muon (Jordan et al. 2024; Liu et al. 2025, arXiv 2502.16982) as PyTorch computes it, with Nesterov's momentum.
template <class T>
void muon_prepare(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run,
                  View<T, 1> values) {
  const bool nesterov = deck.name == OptimizerName::muon;
  with_state_type(run, [&]<class M>(std::type_identity<M>) {
    with_gradient_type(
        run, [&]<class G>(std::type_identity<G>) { prepare_with<M, G>(stream, nesterov, step, run, values); });
  });
}

template <class T>
void muon_apply(Stream& stream, const OptimizerDeck&, const UpdateStep& step, const UpdateArgs<T>& run,
                View<const T, 1> values, double scale) {
  with_weight_type(run, [&]<class W>(std::type_identity<W>) {
    with_gradient_type(run,
                       [&]<class G>(std::type_identity<G>) { apply_with<W, G, T>(stream, step, run, values, scale); });
  });
}

FORGE_INSTANTIATE_FUNCTION(muon_prepare);
FORGE_INSTANTIATE_FUNCTION(muon_apply);

}  // namespace forge
