#include "data/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

std::int64_t sum_of(const std::vector<std::int64_t>& weights) {
  return std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
}

// The smallest whole proportion of weights that are multiples of 10^-k; empty where there is none of a fitting sum.
std::vector<std::int64_t> exact_weights(const std::vector<double>& weights) {
  for (double unit = 1; unit <= 1e9; unit *= 10) {
    std::vector<std::int64_t> whole;
    std::int64_t divisor = 0;
    for (const double weight : weights) {
      const double scaled = weight * unit, nearest = std::nearbyint(scaled);
      if (nearest > 1e15 || std::abs(scaled - nearest) > 1e-12 * scaled) break;
      whole.push_back(static_cast<std::int64_t>(nearest));
      divisor = std::gcd(divisor, whole.back());
    }
    if (whole.size() < weights.size() || divisor == 0) continue;
    std::int64_t sum = 0;
    for (std::int64_t& weight : whole) {
      weight /= divisor;
      sum = std::min(sum + weight, 2 * most_period);  // a sum that doesn't fit needn't be known
      weight = std::min(weight, 2 * most_period);
    }
    return sum <= most_period ? whole : std::vector<std::int64_t>();
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> whole_weights(const std::vector<double>& weights, const std::vector<std::string>& names) {
  if (std::vector<std::int64_t> exact = exact_weights(weights); !exact.empty()) return exact;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!std::isfinite(sum))
    throw BadInput("data.sources: the weights' sum is " + format_exact(sum) + "; legal: smaller weights");
  std::vector<std::int64_t> whole;
  std::vector<double> remainders;
  for (const double weight : weights) {
    const double quota = weight / sum * static_cast<double>(most_period);
    whole.push_back(static_cast<std::int64_t>(std::floor(quota)));
    remainders.push_back(quota - std::floor(quota));
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  std::int64_t left = most_period - sum_of(whole);
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size()) {
    if (weights[order[i]] == 0) continue;
    ++whole[order[i]];
    --left;
  }
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (weights[i] > 0 && whole[i] == 0)
      throw BadInput("data.sources: the weight of " + names[i] + " is a share of " + format_exact(weights[i] / sum) +
                     " of all, less than one of " + std::to_string(most_period) +
                     " samples; legal: a larger one, 0, or a higher data.temperature");
  return whole;
}

std::vector<PeriodPlace> chairman_assignment(const std::vector<std::int64_t>& weights) {
  const std::int64_t W = sum_of(weights);
  require(W >= 1 && W <= most_period && weights.size() <= 4096, "mixture: weights don't make a period");
  const auto n = static_cast<std::int64_t>(
      weights.size() - static_cast<std::size_t>(std::count(weights.begin(), weights.end(), std::int64_t{0})));
  const std::int64_t k = std::max<std::int64_t>(2 * n - 2, 1);
  std::vector<std::int64_t> given(weights.size(), 0);
  std::vector<PeriodPlace> places;
  places.reserve(to_size(W));
  for (std::int64_t t = 1; t <= W; ++t) {
    // A source may be chosen where w t / W − given >= 1 / k; of these the one whose deadline, the t at which
    // w t / W − given is 1 − 1 / k, comes first.
    std::size_t chosen = weights.size();
    std::int64_t best = 0;  // (1 − 1/k + given) W k − w k t, of `chosen`; divided by its w: time to the deadline
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::int64_t w = weights[i], lead = k * (w * t - given[i] * W);
      if (w == 0 || (lead < W && n > 1)) continue;
      const std::int64_t rest = (k - 1) * W - lead;
      if (chosen == weights.size() || rest * weights[chosen] < best * w) chosen = i, best = rest;
    }
    require(chosen < weights.size(), "mixture: no source may be chosen");
    places.push_back({static_cast<std::uint16_t>(chosen), static_cast<std::uint32_t>(given[chosen]++)});
  }
  return places;
}

MixtureOrder::MixtureOrder(const std::vector<Phase>& phases) {
  require(!phases.empty() && phases.front().begin == 0, "mixture: the first phase begins with place 0");
  for (const Phase& phase : phases) {
    Period period{phase.begin, phase.weights, chairman_assignment(phase.weights), {}, {}};
    period.of_source.resize(phase.weights.size());
    for (std::size_t place = 0; place < period.places.size(); ++place)
      period.of_source[period.places[place].source].push_back(static_cast<std::uint32_t>(place));
    for (std::size_t i = 0; i < phase.weights.size(); ++i)
      period.before.push_back(periods_.empty() ? 0 : drawn(i, phase.begin));
    require(periods_.empty() || periods_.back().begin < phase.begin, "mixture: phases are in order");
    periods_.push_back(std::move(period));
  }
}

const MixtureOrder::Period& MixtureOrder::period_of(std::int64_t place) const {
  const auto next = std::upper_bound(periods_.begin(), periods_.end(), place,
                                     [](std::int64_t p, const Period& period) { return p < period.begin; });
  return *(next - 1);
}

MixtureOrder::Draw MixtureOrder::at(std::int64_t place) const {
  require(place >= 0, "mixture: a negative place");
  const Period& period = period_of(place);
  const auto length = static_cast<std::int64_t>(period.places.size());
  const std::int64_t rounds = (place - period.begin) / length;
  const PeriodPlace found = period.places[to_size((place - period.begin) % length)];
  return {found.source, period.before[found.source] + rounds * period.weights[found.source] + found.index};
}

std::int64_t MixtureOrder::drawn_in(const Period& period, std::size_t source, std::int64_t places) {
  const auto length = static_cast<std::int64_t>(period.places.size());
  const std::vector<std::uint32_t>& own = period.of_source[source];
  const auto end = std::lower_bound(own.begin(), own.end(), static_cast<std::uint32_t>(places % length));
  return places / length * period.weights[source] + (end - own.begin());
}

std::int64_t MixtureOrder::drawn(std::size_t source, std::int64_t places) const {
  const Period& period = period_of(std::max<std::int64_t>(places - 1, 0));
  return period.before[source] + drawn_in(period, source, places - period.begin);
}

}  // namespace forge
