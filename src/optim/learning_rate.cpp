#include "optim/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace forge {

namespace {

// Share of the way from 1 down to the floor that is left at progress p.
double tail(WsdTail kind, double p) {
  switch (kind) {
    case WsdTail::linear:
      return 1 - p;
    case WsdTail::cosine:
      return (1 + std::cos(std::numbers::pi * p)) / 2;
    case WsdTail::sqrt:
      return 1 - std::sqrt(p);
  }
  return 1;
}

double progress(double position, double length) {
  return length > 0 ? std::clamp(position / length, 0.0, 1.0) : 1.0;
}

double decay_share(const OptimizerDeck& d, double steps, double s, double p) {
  switch (d.schedule) {
    case RateSchedule::constant:
    case RateSchedule::inverse_sqrt:
      return 1;
    case RateSchedule::linear:
      return tail(WsdTail::linear, p);
    case RateSchedule::cosine:
      return tail(WsdTail::cosine, p);
    case RateSchedule::wsd: {
      const double length = static_cast<double>(d.decay_steps);
      return tail(d.wsd_tail, progress(s - (steps - length), length));
    }
    case RateSchedule::rex:
      return (1 - p) / (1 - p / 2);
  }
  return 1;
}

}  // namespace

double learning_rate(const OptimizerDeck& d, std::int64_t steps, std::int64_t update) {
  const double s = static_cast<double>(update), warmup = static_cast<double>(d.warmup_steps);
  if (s <= warmup) return d.learning_rate * s / warmup;
  if (d.schedule == RateSchedule::inverse_sqrt) {
    const double w = std::max(warmup, 1.0);
    return d.learning_rate * std::max(d.min_ratio, std::sqrt(w / std::max(s, w)));
  }
  const double p = progress(s - warmup, static_cast<double>(d.decay_steps));
  const double share = decay_share(d, static_cast<double>(steps), s, p);
  return d.learning_rate * (d.min_ratio + (1 - d.min_ratio) * share);
}

UpdateRates update_rates(const OptimizerDeck& d, std::int64_t steps, std::int64_t update) {
  OptimizerDeck others = d;
  if (d.adam_learning_rate > 0) others.learning_rate = d.adam_learning_rate;
  return {learning_rate(d, steps, update), learning_rate(others, steps, update)};
}

}  // namespace forge
