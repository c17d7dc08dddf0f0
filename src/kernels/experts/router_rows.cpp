#include <cmath>

#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "kernels/experts/score_functions.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

namespace {

constexpr int max_groups = 64;

void check(const RouterOptions& o) {
  require(o.experts > 0 && o.chosen > 0, "a router needs experts, and at least one of them chosen");
  require(o.groups > 0 && o.groups <= max_groups && o.experts % o.groups == 0,
          "the experts of a router divide into 1 to 64 groups of equal size");
  require(o.groups_used > 0 && o.groups_used <= o.groups && o.chosen <= o.experts / o.groups * o.groups_used,
          "the groups that a router may use hold fewer experts than it chooses");
  require(o.groups_used == o.groups || o.group_score == GroupScoreKind::max || o.experts / o.groups >= 2,
          "a group that is worth its two best experts needs two");
}

// What the choice compares; NaN loses to every number.
template <class A>
struct Keys {
  const A *base, *bias;

  FORGE_INLINE A operator()(std::int64_t j) const {
    A key = base[j];
    if (bias) key += bias[j];
    return key == key ? key : -static_cast<A>(INFINITY);
  }
};

// The groups that may be chosen from, as bits. Every worker of a team computes it for itself.
template <class A>
FORGE_INLINE std::uint64_t best_groups(const RouterOptions& o, Keys<A> key) {
  const std::int64_t size = quotient(o.experts, o.groups);
  A values[max_groups];
  for (std::int64_t g = 0; g < o.groups; ++g) {
    A best = -static_cast<A>(INFINITY), second = best;
    for (std::int64_t j = g * size; j < (g + 1) * size; ++j) {
      const A x = key(j), lower = x < best ? x : best;
      best = x > best ? x : best;
      second = lower > second ? lower : second;
    }
    values[g] = o.group_score == GroupScoreKind::top2_sum ? best + second : best;
  }
  std::uint64_t used = 0;
  for (std::int64_t i = 0; i < o.groups_used; ++i) {
    std::int64_t best = -1;
    for (std::int64_t g = 0; g < o.groups; ++g)
      if (!(used >> g & 1) && (best < 0 || values[g] > values[best])) best = g;
    used |= std::uint64_t{1} << best;
  }
  return used;
}

// experts(k), best first: each is the first, in the order of falling keys and rising numbers, behind the one before.
template <bool limited, class A>
FORGE_INLINE void choose(Team team, const RouterOptions& o, Keys<A> key, std::int32_t* experts) {
  const std::uint64_t used = limited ? best_groups(o, key) : 0;
  const A per_expert = static_cast<A>(o.groups) / static_cast<A>(o.experts);
  const A none = -static_cast<A>(INFINITY);
  A last = static_cast<A>(INFINITY);
  std::int64_t last_index = -1;
  for (std::int64_t i = 0; i < o.chosen; ++i) {
    // j / size by a product, which vectorises; in the width of A, because g++ 12 gets masks of doubles and of 32-bit
    // numbers mixed up on AVX-512.
    const auto open = [=](std::int64_t j, A x) {
      const bool behind = x < last || (x == last && j > last_index);
      if constexpr (!limited) return behind;
      const auto group = static_cast<std::int64_t>((static_cast<A>(j) + A(0.5)) * per_expert);
      return behind && (used >> group & 1) != 0;
    };
    const A best = team.template max<A>(o.experts, [=](std::int64_t j) {
      const A x = key(j);
      return open(j, x) ? x : none;
    });
    const A lowest = team.template max<A>(o.experts, [=](std::int64_t j) {
      const A x = key(j);
      return open(j, x) && x == best ? static_cast<A>(-j) : none;
    });
    last = best;
    last_index = static_cast<std::int64_t>(-lowest);
    if (team.leads()) experts[i] = static_cast<std::int32_t>(last_index);
  }
}

template <class A>
FORGE_INLINE void fill_scores(Team team, const RouterOptions& o, const A* x, A* scores) {
  if (const ScoreKind kind = o.score; !sums_to_one(kind))
    return team.each(o.experts, [=](std::int64_t j) { scores[j] = score_of_logit(kind, x[j]); });
  const A largest = team.template max<A>(o.experts, [=](std::int64_t j) { return x[j]; });
  const A sum = team.template sum<A>(o.experts, [=](std::int64_t j) {
    const A e = math::exp(x[j] - largest);
    scores[j] = e;
    return e;
  });
  team.each(o.experts, [=](std::int64_t j) { scores[j] /= sum; });
}

// Softmax over the chosen logits: shift by their maximum and sum of exponentials.
template <class A>
struct ChosenSoftmax {
  const A* logits;
  A largest, sum;

  FORGE_INLINE ChosenSoftmax(std::int64_t k, const A* x, const std::int32_t* experts)
      : logits(x), largest(x[experts[0]]), sum(0) {
    for (std::int64_t i = 1; i < k; ++i) largest = x[experts[i]] > largest ? x[experts[i]] : largest;
    for (std::int64_t i = 0; i < k; ++i) sum += math::exp(x[experts[i]] - largest);
  }
  FORGE_INLINE A operator()(std::int32_t expert) const { return math::exp(logits[expert] - largest) / sum; }
};

// The sum that chosen scores are divided by.
template <class A>
FORGE_INLINE A divisor(const RouterOptions& o, const A* scores, const std::int32_t* experts) {
  if (!o.renormalise) return A(1);
  A sum = 0;
  for (std::int64_t i = 0; i < o.chosen; ++i) sum += scores[experts[i]];
  return sums_to_one(o.score) ? sum : sum + A(1e-20);
}

// What no router counts has no score and no weight.
template <class A>
FORGE_INLINE void fill_filler(Team team, const RouterOptions& o, A* scores, A* weights) {
  team.each(o.experts, [=](std::int64_t j) { scores[j] = A(0); });
  team.each(o.chosen, [=](std::int64_t i) { weights[i] = A(0); });
}

// By one worker.
template <class A>
FORGE_INLINE void fill_weights(const RouterOptions& o, const A* logits, const A* scores, const std::int32_t* experts,
                               A* weights) {
  if (chosen_by_logit(o.score)) {
    const ChosenSoftmax<A> softmax(o.chosen, logits, experts);
    for (std::int64_t i = 0; i < o.chosen; ++i) weights[i] = softmax(experts[i]) * A(o.scale);
    return;
  }
  const A sum = divisor(o, scores, experts);
  for (std::int64_t i = 0; i < o.chosen; ++i) weights[i] = scores[experts[i]] / sum * A(o.scale);
}

}  // namespace

template <class A>
void router_forward(Stream& stream, RouterOptions options, View<const A, 2> logits, View<const A, 1> bias,
                    View<A, 2> weights, View<std::int32_t, 2> experts, View<A, 2> scores,
                    View<const std::int64_t, 1> samples) {
  note_rows(stream, "router_forward", bytes_in(logits), bytes_in(scores));
  check(options);
  parallel_rows(stream, logits.rows(), row_width<A>(options.experts), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A* x = logits.row(r);
    A* s = scores.row(r);
    if (!samples.empty() && samples[r] < 0) {
      std::int32_t* const e = experts.row(r);
      team.each(options.chosen, [=](std::int64_t i) { e[i] = -1; });
      return fill_filler(team, options, s, weights.row(r));
    }
    fill_scores(team, options, x, s);
    const Keys<A> key{chosen_by_logit(options.score) ? x : s, bias.data};
    if (options.groups_used == options.groups)
      choose<false>(team, options, key, experts.row(r));
    else
      choose<true>(team, options, key, experts.row(r));
    if (team.leads()) fill_weights(options, x, s, experts.row(r), weights.row(r));
  });
}

template <class A>
void router_weights(Stream& stream, RouterOptions options, View<const A, 2> logits, View<const std::int32_t, 2> experts,
                    View<A, 2> weights, View<A, 2> scores) {
  note_rows(stream, "router_weights", bytes_in(logits), bytes_in(scores));
  check(options);
  parallel_rows(stream, logits.rows(), row_width<A>(options.experts), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    if (experts.row(r)[0] < 0) return fill_filler(team, options, scores.row(r), weights.row(r));
    fill_scores(team, options, logits.row(r), scores.row(r));
    if (team.leads()) fill_weights(options, logits.row(r), scores.row(r), experts.row(r), weights.row(r));
  });
}

void balanced_experts(Stream& stream, RouterOptions options, View<const std::int32_t, 1> positions,
                      View<std::int32_t, 2> experts, View<const std::int64_t, 1> samples) {
  const std::int64_t k = experts.columns(), E = options.experts;
  // With all groups in use the experts are one group.
  const bool limited = options.groups_used < options.groups;
  const std::int64_t groups = limited ? options.groups : 1, used = limited ? options.groups_used : 1, size = E / groups,
                     of_group = (k + used - 1) / used;
  parallel_for(stream, experts.rows() * k, [=] FORGE_LAMBDA(std::int64_t q) {
    const std::int64_t r = quotient(q, k), c = q - r * k, p = positions[r] - quotient(positions[r], E) * E;
    const bool filler = !samples.empty() && samples[r] < 0;
    const std::int64_t round = quotient(c, used), first = quotient(p, size);
    std::int64_t group = first + quotient((c - round * used) * groups, used), i = p - first * size;
    i += quotient(round * size, of_group);
    group -= group < groups ? 0 : groups;
    i -= i < size ? 0 : size;
    experts.row(r)[c] = filler ? -1 : static_cast<std::int32_t>(group * size + i);
  });
}

// With g = d_weights, D the divisor and w = scale · s / D of the chosen:
//   d_s = scale · (g − [renormalised] Σ g s / D) / D      of the chosen, and what comes from d_scores
//   d_x = s (d_s − Σ d_s s) where the scores sum to one, else d_s ds/dx. Renormalised weights add nothing to Σ d_s s:
//   it is left out there, so that the logits of experts that nobody chose have a gradient of zero, not of its rounding
//   chosen by logit, with p the softmax over the chosen:  d_x += scale · p (g − Σ g p)
template <class A>
void router_backward(Stream& stream, RouterOptions options, View<const A, 2> logits, View<const A, 2> scores,
                     View<const std::int32_t, 2> experts, View<const A, 2> d_weights, View<const A, 2> d_scores,
                     View<A, 2> d_logits) {
  note_rows(stream, "router_backward", bytes_in(scores, d_scores), bytes_in(d_logits));
  check(options);
  const std::int64_t E = options.experts, k = options.chosen;
  parallel_rows(stream, scores.rows(), row_width<A>(E), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A *s = scores.row(r), *g = d_weights.row(r), *more = d_scores.empty() ? nullptr : d_scores.row(r);
    const std::int32_t* e = experts.row(r);
    const A scale = A(options.scale);
    A* d = d_logits.row(r);
    if (e[0] < 0) return team.each(E, [=](std::int64_t j) { d[j] = A(0); });
    A dot = more ? team.template sum<A>(E, [=](std::int64_t j) { return more[j] * s[j]; }) : A(0);
    team.each(E, [=](std::int64_t j) { d[j] = more ? more[j] : A(0); });
    if (!chosen_by_logit(options.score)) {
      const A D = divisor(options, s, e);
      A mean = 0;
      for (std::int64_t i = 0; i < k; ++i) mean += g[i] * (s[e[i]] / D);
      if (!options.renormalise) {
        dot += scale * mean;
        mean = 0;
      }
      team.each(k, [=](std::int64_t i) { d[e[i]] += scale * (g[i] - mean) / D; });
    }
    if (const ScoreKind kind = options.score; !sums_to_one(kind))
      return team.each(E, [=](std::int64_t j) { d[j] *= slope_of_score(kind, s[j]); });
    team.each(E, [=](std::int64_t j) { d[j] = s[j] * (d[j] - dot); });
    if (!chosen_by_logit(options.score)) return;
    const ChosenSoftmax<A> p(k, logits.row(r), e);
    A mean = 0;
    for (std::int64_t i = 0; i < k; ++i) mean += g[i] * p(e[i]);
    team.each(k, [=](std::int64_t i) { d[e[i]] += scale * p(e[i]) * (g[i] - mean); });
  });
}

FORGE_INSTANTIATE_ACC_FUNCTION(router_forward);
FORGE_INSTANTIATE_ACC_FUNCTION(router_weights);
FORGE_INSTANTIATE_ACC_FUNCTION(router_backward);

}  // namespace forge
