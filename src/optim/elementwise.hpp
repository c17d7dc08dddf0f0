#pragma once

#include <type_traits>
#include <utility>

#include "core/to_size.hpp"
#include "device/parallel.hpp"
#include "optim/update.hpp"

namespace forge {

namespace update_detail {

template <class T, class F, class M, int... I>
FORGE_INLINE void update_block(Team team, std::int64_t n, acc_t<T> clip, acc_t<T>* g, acc_t<T>* p, T* copy, bool leaves,
                               const Array<M*, static_cast<int>(sizeof...(I))>& states, F new_weight,
                               std::integer_sequence<int, I...>) {
  using A = acc_t<T>;
  if (leaves)
    team.each(n, [=](std::int64_t j) {
      const A before = p[j];
      p[j] = new_weight(g[j] * clip, before, states[I][j]...);
      if (copy) copy[j] = T(p[j]);
      g[j] = p[j] - before;
    });
  else if (copy)
    team.map(
        n,
        [=](const A& g_i, A& p_i, T& copy_i, auto&... state) {
          p_i = new_weight(g_i * clip, p_i, state...);
          copy_i = T(p_i);
        },
        static_cast<const A*>(g), in_place(p), copy, in_place(states[I])...);
  else
    team.map(
        n, [=](const A& g_i, A& p_i, auto&... state) { p_i = new_weight(g_i * clip, p_i, state...); },
        static_cast<const A*>(g), in_place(p), in_place(states[I])...);
}

}  // namespace update_detail

// f(std::type_identity<M>()) for the type M of a run's first state: that of the sums, or bf16.
template <class T, class F>
void with_state_type(const UpdateRun<T>& run, F f) {
  if constexpr (!std::is_same_v<T, double>)
    if (run.state[0].type == DType::bf16) return f(std::type_identity<bf16>());
  f(std::type_identity<acc_t<T>>());
}

// p ← new_weight(clip·g, p, states…) of every element of a run, and the copy of p in the compute type, in one pass;
// nothing changes when scalars->finite is 0. new_weight takes two values and, by reference (M&), what the optimizer
// keeps of the element: the first `count` of its states, of type M. Include it where kernels may stand
// (forge_device_sources).
template <class M, int count, class T, class F>
void update_weights(Stream& stream, const UpdateStep& step, const UpdateRun<T>& run, F new_weight) {
  using A = acc_t<T>;
  constexpr std::int64_t block = 4096;
  const View<const StepScalars, 1> scalars = step.scalars;
  const View<A, 1> gradient = run.gradient;
  const bool leaves = step.leaves;
  const View<A, 1> master = run.master;
  const View<T, 1> copy = run.copy;
  Array<M*, count> states;
  for (int i = 0; i < count; ++i) states[i] = run.template state_of<M>(to_size(i)).data;
  const std::int64_t n = master.rows();
  parallel_rows(stream, (n + block - 1) / block, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    if (scalars[0].finite == 0) return;
    const std::int64_t begin = b * block, width = n - begin < block ? n - begin : block;
    Array<M*, count> here = states;
    for (int i = 0; i < count; ++i) here[i] += begin;
    update_detail::update_block<T>(team, width, A(scalars[0].clip_coefficient), gradient.data + begin,
                                   master.data + begin, copy.empty() ? nullptr : copy.data + begin, leaves, here,
                                   new_weight, std::make_integer_sequence<int, count>());
  });
}

}  // namespace forge
