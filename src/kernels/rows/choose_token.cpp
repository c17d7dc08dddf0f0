#include "kernels/rows/choose_token.hpp"

#include <algorithm>
#include <bit>

#include "core/error.hpp"
#include "device/add_to.hpp"
#include "device/parallel.hpp"
#include "kernels/rows/select_key.hpp"

// Of tokens in their order, larger logits x first:
//   w_j = e^((x_j − max x) / temperature), rounded to a multiple of 2^−b, b = 50 at most and such that Σ w fits 62 bits
//   kept = the first top_k, and of these the first whose sum is top_p Σ_kept w or more
//   chosen = the first whose sum exceeds uniform · Σ_kept w
// Sums of integers don't depend on their order, so that nothing is sorted: a histogram of (max x − x) / temperature
// says in which bin a sum is reached, and the bits of that bin's logits at which of its tokens.

namespace forge {

namespace {

constexpr double lowest = -40;  // e^lowest rounds to 0

// e^x of x in [lowest, 0] to 2^-52 of its value; on the host without branches or calls, so that loops vectorise:
// 2^k e^r with |r| <= ln(2)/2, by the series of e^r.
FORGE_INLINE double exp_of_choice(double x) {
  if (FORGE_DEVICE_CODE) return ::exp(x);
  const double shift = 6755399441055744.0;  // 1.5 · 2^52: adding it rounds to an integer, which stands in the low bits
  const double shifted = x * 1.4426950408889634 + shift, n = shifted - shift;
  const std::int64_t k = __builtin_bit_cast(std::int64_t, shifted) - __builtin_bit_cast(std::int64_t, shift);
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;  // ln 2 in two parts
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  return (p * r * r + r + 1.0) * __builtin_bit_cast(double, (k + 1023) << 52);
}

// x >= 0, below 2^51, rounded: the bits that stand behind those of 2^52.
FORGE_INLINE std::int64_t rounded(double x) {
  const double first = 4503599627370496.0;
  return __builtin_bit_cast(std::int64_t, x + first) - __builtin_bit_cast(std::int64_t, first);
}

template <class A>
struct Choice {
  View<const A, 1> logits;
  TokenChoice how;
  ChoiceWorkspace<A> work;
  double one;  // a weight of 1

  FORGE_INLINE std::int64_t count() const { return logits.rows(); }
  FORGE_INLINE std::int64_t end_of(std::int64_t chunk) const {
    return (chunk + 1) * choice_chunk < count() ? (chunk + 1) * choice_chunk : count();
  }

  // NaN where a logit is.
  FORGE_INLINE A largest() const {
    A most = work.largest[0];
    for (std::int64_t i = 1; i < work.largest.rows(); ++i) {
      const A x = work.largest[i];
      most = x > most || x != x ? x : most;
    }
    return most;
  }

  FORGE_INLINE void weigh(std::int64_t chunk, Team team) const {
    const double most = largest(), temperature = how.temperature, unit = one;
    const bool defined = most - most == 0;
    const std::int64_t begin = chunk * choice_chunk;
    const A* const x = logits.data + begin;
    std::int64_t* const weights = work.weights.data + begin;
    std::int32_t* const bins = work.tokens.row(0) + begin;
    team.each(end_of(chunk) - begin, [=](std::int64_t j) {
      const double wanted = defined ? (double(x[j]) - most) / temperature : lowest;
      const double power = wanted < lowest ? lowest : wanted, bin = power * (choice_bins / lowest);
      weights[j] = rounded(exp_of_choice(power) * unit);
      bins[j] = static_cast<std::int32_t>(bin < choice_bins - 1 ? bin : choice_bins - 1);
    });
  }

  struct Place {
    std::int64_t token, sum;  // sum: of weights up to the token
  };
  // Where the sum of weights, or else the number of tokens, reaches a target.
  FORGE_INLINE Place place_of(Team team, std::int64_t target, bool by_weight) const {
    const std::int64_t *sums = work.bins.row(by_weight ? 0 : 1), *of_bins = work.bins.row(0);
    std::int64_t* const found = work.found.data;
    team.template scan<std::int64_t>(
        choice_bins, [=](std::int64_t i) { return sums[i]; },
        [=](std::int64_t i, std::int64_t before) {
          if (before >= target || target > before + sums[i]) return;
          found[0] = i;
          found[1] = target - before;
        });
    const std::int64_t bin = found[0];
    std::int64_t wanted = found[1];
    const std::int32_t* const bin_of = work.tokens.row(0);
    std::int32_t* const members = work.tokens.row(1);
    const auto n = team.template scan<std::int32_t>(
        count(), [=](std::int64_t j) { return bin_of[j] == bin ? 1 : 0; },
        [=](std::int64_t j, std::int32_t before) {
          if (bin_of[j] == bin) members[before] = static_cast<std::int32_t>(j);
        });
    const A* const x = logits.data;
    const std::int64_t* const weights = work.weights.data;
    const auto key = [=](std::int64_t i) { return falling_key(x[members[i]]); };
    const auto amount = [=](std::int64_t i) { return by_weight ? weights[members[i]] : std::int64_t{1}; };
    const std::uint64_t last = select_key(team, n, 8 * sizeof(A), wanted, amount, key);
    const auto of_last = [=](std::int64_t i) { return key(i) == last ? amount(i) : std::int64_t{0}; };
    team.template scan<std::int64_t>(n, of_last, [=](std::int64_t i, std::int64_t before) {
      if (before < wanted && wanted <= before + of_last(i)) found[0] = members[i];
    });
    const std::int64_t token = found[0];
    const auto before = team.template sum<std::int64_t>(bin, [=](std::int64_t i) { return of_bins[i]; });
    const auto within = team.template sum<std::int64_t>(n, [=](std::int64_t i) {
      const std::uint64_t here = key(i);
      return here < last || (here == last && members[i] <= token) ? weights[members[i]] : std::int64_t{0};
    });
    return {token, before + within};
  }

  FORGE_INLINE std::int64_t choose(Team team) const {
    const double most = largest();
    if (most - most != 0) return -1;
    if (how.top_k == 1) return place_of(team, 1, false).token;
    const std::int64_t* const weights = work.bins.row(0);
    auto sum = team.template sum<std::int64_t>(choice_bins, [=](std::int64_t i) { return weights[i]; });
    if (how.top_k > 0 && how.top_k < count()) sum = place_of(team, how.top_k, false).sum;
    const auto part = [&sum](double x) { return x < double(sum) ? static_cast<std::int64_t>(x) : sum; };
    if (how.top_p < 1) {
      const std::int64_t least = part(::ceil(how.top_p * double(sum)));
      sum = place_of(team, least > 1 ? least : 1, true).sum;
    }
    const std::int64_t drawn = part(how.uniform * double(sum));
    return place_of(team, drawn < sum ? drawn + 1 : sum, true).token;
  }
};

}  // namespace

template <class A>
void choose_token(Stream& stream, View<const A, 1> logits, const TokenChoice& how, const ChoiceWorkspace<A>& workspace,
                  View<std::int32_t, 1> chosen) {
  const std::int64_t V = logits.rows(), chunks = choice_chunks(V);
  require(workspace.largest.rows() == chunks && workspace.weights.rows() == V && workspace.tokens.columns() == V &&
              workspace.bins.columns() == choice_bins,
          "choose_token: shapes differ");
  const int bits = std::min(50, 62 - static_cast<int>(std::bit_width(static_cast<std::uint64_t>(V))));
  Choice<A> choice{logits, how, workspace, static_cast<double>(std::int64_t{1} << bits)};
  if (how.temperature == 0) {
    choice.how.temperature = 1;
    choice.how.top_k = 1;
  }
  parallel_rows(stream, chunks, [=] FORGE_LAMBDA(std::int64_t chunk, Team team) {
    const A* const x = choice.logits.data + chunk * choice_chunk;
    const A largest =
        team.template max<A>(choice.end_of(chunk) - chunk * choice_chunk, [=](std::int64_t j) { return x[j]; });
    if (team.leads()) choice.work.largest[chunk] = largest;
  });
  std::int64_t *const weights = workspace.bins.row(0), *const numbers = workspace.bins.row(1);
  parallel_for(stream, choice_bins, [=] FORGE_LAMBDA(std::int64_t i) { weights[i] = numbers[i] = 0; });
  parallel_rows(stream, chunks, [=] FORGE_LAMBDA(std::int64_t chunk, Team team) { choice.weigh(chunk, team); });
  parallel_sums(stream, V, [=] FORGE_LAMBDA(std::int64_t j) {
    const std::int32_t bin = choice.work.tokens.row(0)[j];
    add_to(weights[bin], choice.work.weights[j]);
    add_to(numbers[bin], 1);
  });
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const auto token = static_cast<std::int32_t>(choice.choose(team));
    if (team.leads()) chosen[0] = token;
  });
}

FORGE_INSTANTIATE_ACC_FUNCTION(choose_token);

}  // namespace forge
