#pragma once

#include <type_traits>
#include <utility>

#include "core/to_size.hpp"
#include "kernels/rows/block_draws.hpp"
#include "optim/update.hpp"

namespace forge {

namespace update_detail {

// Gradients of type G; weights and states as they are computed.
template <class T, class G, class F, int... I>
FORGE_INLINE void update_block(Team team, std::int64_t n, acc_t<T> clip, G* g, acc_t<T>* p, T* copy, bool leaves,
                               const Array<acc_t<T>*, static_cast<int>(sizeof...(I))>& states, F new_weight,
                               std::integer_sequence<int, I...>) {
  using A = acc_t<T>;
  if (leaves)
    team.each(n, [=](std::int64_t j) {
      const A before = p[j];
      p[j] = new_weight(A(g[j]) * clip, before, states[I][j]...);
      if (copy) copy[j] = T(p[j]);
      g[j] = G(p[j] - before);
    });
  else if (copy)
    team.map(
        n,
        [=](const G& g_i, A& p_i, T& copy_i, auto&... state) {
          p_i = new_weight(A(g_i) * clip, p_i, state...);
          copy_i = T(p_i);
        },
        static_cast<const G*>(g), in_place(p), copy, in_place(states[I])...);
  else
    team.map(
        n, [=](const G& g_i, A& p_i, auto&... state) { p_i = new_weight(A(g_i) * clip, p_i, state...); },
        static_cast<const G*>(g), in_place(p), in_place(states[I])...);
}

// The new value of p of an element whose states are kept in type M, each rounded by the number behind it.
template <class M, class A, class F>
FORGE_INLINE A with_states(const F& new_weight, A g, A p, M& state, const std::uint16_t& random) {
  A kept = A(state);
  const A value = new_weight(g, p, kept);
  state = rounded<M>(kept, random);
  return value;
}
template <class M, class A, class F>
FORGE_INLINE A with_states(const F& new_weight, A g, A p, M& first, const std::uint16_t& of_first, M& second,
                           const std::uint16_t& of_second) {
  A kept = A(first), kept_too = A(second);
  const A value = new_weight(g, p, kept, kept_too);
  first = rounded<M>(kept, of_first);
  second = rounded<M>(kept_too, of_second);
  return value;
}

// Likewise with weights of type W and states of type M, of which at least one is bf16. Numbers that don't fit into bf16
// are rounded by `rounding` from element `begin` of the run on, and changes for reports to nearest.
template <class G, class W, class M, class T, class F, int count>
FORGE_INLINE void update_rounded(Team team, std::int64_t begin, std::int64_t n, acc_t<T> clip, G* g, W* p, T* copy,
                                 bool leaves, const Array<M*, count>& states, const Rounding& rounding, F new_weight) {
  using A = acc_t<T>;
  constexpr int of_states = std::is_same_v<M, bf16> ? count : 0, of_weight = std::is_same_v<W, bf16> ? 1 : 0;
  BlockDraws<of_states + of_weight> draws;
  for_each_of<of_states + of_weight>(
      [&](int r) { draws.fill(team, r, rounding, r < of_states ? r : weight_draw, begin, n); });
  // A number that is kept as it is reads any row.
  const auto state_row = [&](int i) { return draws.row(of_states > 0 ? i : 0); };
  const std::uint16_t* const weight_row = draws.row(of_weight > 0 ? of_states : 0);
  const auto loop = [&](const auto& f, const auto&... rows) {
    if constexpr (count == 1)
      team.map(n, f, rows..., in_place(states[0]), state_row(0));
    else
      team.map(n, f, rows..., in_place(states[0]), state_row(0), in_place(states[1]), state_row(1));
  };
  const auto updated = [=](A g_i, W& p_i, std::uint16_t random, auto&... kept) {
    p_i = rounded<W>(with_states<M>(new_weight, g_i * clip, A(p_i), kept...), random);
  };
  const auto of_gradient = static_cast<const G*>(g);
  if (leaves) {
    loop(
        [=](G& g_i, W& p_i, const std::uint16_t& random, auto&... kept) {
          const A before = A(p_i);
          updated(A(g_i), p_i, random, kept...);
          g_i = G(A(p_i) - before);
        },
        in_place(g), in_place(p), weight_row);
    if (copy)
      team.map(
          n, [=](const W& p_i, T& copy_i) { copy_i = T(A(p_i)); }, static_cast<const W*>(p), copy);
  } else if (copy) {
    loop(
        [=](const G& g_i, W& p_i, const std::uint16_t& random, T& copy_i, auto&... kept) {
          updated(A(g_i), p_i, random, kept...);
          copy_i = T(A(p_i));
        },
        of_gradient, in_place(p), weight_row, copy);
  } else {
    loop([=](const G& g_i, W& p_i, const std::uint16_t& random,
             auto&... kept) { updated(A(g_i), p_i, random, kept...); },
         of_gradient, in_place(p), weight_row);
  }
}

// One of the two above.
template <class G, class W, class M, class T, class F, class Numbers, class States>
FORGE_INLINE void update_part(Team team, std::int64_t begin, std::int64_t n, acc_t<T> clip, G* g, W* p, T* copy,
                              bool leaves, const States& states, const Rounding& rounding, F new_weight,
                              Numbers numbers) {
  using A = acc_t<T>;
  if constexpr (std::is_same_v<M, A> && std::is_same_v<W, A>)
    update_block<T>(team, n, clip, g, p, copy, leaves, states, new_weight, numbers);
  else
    update_rounded<G, W, M, T>(team, begin, n, clip, g, p, copy, leaves, states, rounding, new_weight);
}

template <class M, class W, class G, int count, class T, class F>
void update_weights(Stream& stream, const UpdateStep& step, const UpdateArgs<T>& run, F new_weight) {
  using A = acc_t<T>;
  constexpr std::int64_t block = rounding_block;
  const View<const StepScalars, 1> scalars = step.scalars;
  const bool leaves = step.leaves;
  G* const gradient = run.template gradients<G>();
  W* const weights = run.template weights<W>();
  T* const copy = run.master.empty() ? nullptr : run.copy.data;
  Array<M*, count> states;
  for (int i = 0; i < count; ++i) states[i] = run.template state_of<M>(to_size(i)).data;
  const Rounding rounding(run.place, step.number);
  const std::int64_t n = run.size();
  parallel_rows(stream, (n + block - 1) / block, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    if (scalars[0].finite == 0) return;
    const std::int64_t begin = b * block, width = n - begin < block ? n - begin : block;
    Array<M*, count> here = states;
    for (int i = 0; i < count; ++i) here[i] += begin;
    update_part<G, W, M, T>(team, begin, width, A(scalars[0].clip_coefficient), gradient + begin, weights + begin,
                            copy ? copy + begin : nullptr, leaves, here, rounding, new_weight,
                            std::make_integer_sequence<int, count>());
  });
}

}  // namespace update_detail

// f(std::type_identity<M>()) for the type M of a run's first state: the type of the sums, or bf16.
template <class T, class F>
void with_state_type(const UpdateArgs<T>& run, F f) {
  if constexpr (!std::is_same_v<T, double>)
    if (run.state[0].type == DType::bf16) return f(std::type_identity<bf16>());
  f(std::type_identity<acc_t<T>>());
}

// Likewise for the type of a run's master weights.
template <class T, class F>
void with_weight_type(const UpdateArgs<T>& run, F f) {
  if constexpr (!std::is_same_v<T, acc_t<T>>)
    if (run.master.empty()) return f(std::type_identity<T>());
  f(std::type_identity<acc_t<T>>());
}

// Likewise for the type of a run's gradient.
template <class T, class F>
void with_gradient_type(const UpdateArgs<T>& run, F f) {
  if constexpr (!std::is_same_v<T, acc_t<T>>)
    if (run.gradient.empty()) return f(std::type_identity<T>());
  f(std::type_identity<acc_t<T>>());
}

// p ← new_weight(clip·g, p, states…) of every element of a run, and the copy of p in the compute type, in one pass;
// nothing changes when scalars->finite is 0. new_weight takes two values and, by reference (A&), the element's states:
// the first `count` of the optimizer's. All is computed in A, and numbers kept in bf16 are rounded stochastically
// (kernels/rows/rounding.hpp). Include it where kernels may stand (forge_device_sources).
template <int count, class T, class F>
void update_weights(Stream& stream, const UpdateStep& step, const UpdateArgs<T>& run, F new_weight) {
  with_state_type(run, [&]<class M>(std::type_identity<M>) {
    with_weight_type(run, [&]<class W>(std::type_identity<W>) {
      with_gradient_type(run, [&]<class G>(std::type_identity<G>) {
        update_detail::update_weights<M, W, G, count>(stream, step, run, new_weight);
      });
    });
  });
}

}  // namespace forge
