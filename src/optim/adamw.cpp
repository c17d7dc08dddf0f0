#include "optim/adamw.hpp"

#include "device/parallel.hpp"
#include "kernels/math.hpp"

namespace forge {

namespace {

// The constants of a step in the storage type, each rounded once from double, as PyTorch does.
template <class S>
struct Coefficients {
  S decay, one_minus_beta1, beta2, one_minus_beta2, step_size, root_bias2, epsilon;

  explicit Coefficients(const AdamwStep& step)
      : decay(S(1 - step.learning_rate * step.weight_decay)),
        one_minus_beta1(S(1 - step.beta1)),
        beta2(S(step.beta2)),
        one_minus_beta2(S(1 - step.beta2)),
        step_size(S(step.learning_rate / step.bias1)),
        root_bias2(S(std::sqrt(step.bias2))),
        epsilon(S(step.epsilon)) {}
};

}  // namespace

template <class S, class M, class T>
void adamw(Stream& stream, AdamwStep step, View<const StepScalars, 1> scalars, View<const S, 1> gradient,
           View<S, 1> parameter, View<M, 1> m, View<M, 1> v, View<T, 1> copy) {
  constexpr std::int64_t block = 4096;
  const Coefficients<S> k(step);
  const std::int64_t n = parameter.rows();
  parallel_rows(stream, (n + block - 1) / block, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    if (scalars[0].finite == 0) return;
    const std::int64_t begin = b * block, width = n - begin < block ? n - begin : block;
    const S clip = S(scalars[0].clip_coefficient);
    const S* gs = gradient.data + begin;
    S* ps = parameter.data + begin;
    M *ms = m.data + begin, *vs = v.data + begin;
    team.each(width, [=](std::int64_t i) {
      const S g = gs[i] * clip;
      const S m1 = S(ms[i]) + k.one_minus_beta1 * (g - S(ms[i]));
      const S v1 = k.beta2 * S(vs[i]) + k.one_minus_beta2 * g * g;
      ms[i] = M(m1);
      vs[i] = M(v1);
      ps[i] = ps[i] * k.decay - k.step_size * (m1 / (math::sqrt(v1) / k.root_bias2 + k.epsilon));
    });
    if (copy.empty()) return;
    T* ts = copy.data + begin;
    team.each(width, [=](std::int64_t i) { ts[i] = T(ps[i]); });
  });
}

OptimizerState adamw_state(const OptimizerDeck& deck, DType standard) {
  const DType type = deck.moments == MomentType::bf16 ? DType::bf16 : standard;
  return {{"first_moment", type}, {"second_moment", type}};
}

template <class T>
void adamw_update(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run) {
  const auto t = static_cast<double>(step.number);
  const AdamwStep how{step.rate,
                      deck.beta1,
                      deck.beta2,
                      deck.epsilon,
                      run.decays ? deck.weight_decay : 0,
                      1 - std::pow(deck.beta1, t),
                      1 - std::pow(deck.beta2, t)};
  const auto with_moments = [&]<class M>(M) {
    adamw<acc_t<T>, M, T>(stream, how, step.scalars, run.gradient, run.master, run.template state_of<M>(0),
                          run.template state_of<M>(1), run.copy);
  };
  if constexpr (!std::is_same_v<T, double>)
    if (run.state[0].type == DType::bf16) return with_moments(bf16());
  with_moments(acc_t<T>());
}

#define FORGE_ADAMW(S, M, T)                                                                                 \
  template void adamw<S, M, T>(Stream&, AdamwStep, View<const StepScalars, 1>, View<const S, 1>, View<S, 1>, \
                               View<M, 1>, View<M, 1>, View<T, 1>);
FORGE_ADAMW(double, double, double)
FORGE_ADAMW(float, float, float)
FORGE_ADAMW(float, float, bf16)
FORGE_ADAMW(float, bf16, float)
FORGE_ADAMW(float, bf16, bf16)
#undef FORGE_ADAMW
template void adamw_update<double>(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<double>&);
template void adamw_update<float>(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<float>&);
template void adamw_update<bf16>(Stream&, const OptimizerDeck&, const UpdateStep&, const UpdateRun<bf16>&);

}  // namespace forge
