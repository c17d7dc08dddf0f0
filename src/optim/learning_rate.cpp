#include "optim/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "config/rate_points.hpp"

namespace forge {

namespace {

// Fraction of the way from 1 down to the floor that is left at progress p.
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

// Of a step behind warm-up: how much of its period is over. A period begins with the step behind the last one's end.
double progress_in_period(const OptimizerDeck& d, double s) {
  double period = static_cast<double>(d.decay_steps);
  if (period < 1) return 1;
  if (d.restart_factor == 1) return std::fmod(s, period) / period;
  while (s >= period) {
    s -= period;
    period *= d.restart_factor;
  }
  return s / period;
}

double decay_fraction(const OptimizerDeck& d, double steps, double s, double p) {
  switch (d.schedule) {
    case RateSchedule::constant:
    case RateSchedule::inverse_sqrt:
      return 1;
    case RateSchedule::linear:
      return tail(WsdTail::linear, p);
    case RateSchedule::cosine:
      return tail(WsdTail::cosine, p);
    case RateSchedule::wsd: {
      const double length = std::min(static_cast<double>(d.decay_steps), steps - static_cast<double>(d.warmup_steps));
      return tail(d.wsd_tail, progress(s - (steps - length), length));
    }
    case RateSchedule::rex:
      return (1 - p) / (1 - p / 2);
    case RateSchedule::cosine_restarts:
      return tail(WsdTail::cosine, progress_in_period(d, s - static_cast<double>(d.warmup_steps)));
    case RateSchedule::piecewise:
      return 1;
  }
  return 1;
}

double ratio_at(const std::vector<RatePoint>& points, double s) {
  double step = 0, ratio = points.empty() ? 1 : points.front().ratio;
  for (const RatePoint& point : points) {
    const auto next = static_cast<double>(point.step);
    if (s < next) return ratio + (point.ratio - ratio) * (s - step) / (next - step);
    step = next;
    ratio = point.ratio;
  }
  return ratio;
}

// Without a cooldown.
double scheduled_rate(const OptimizerDeck& d, std::int64_t steps, std::int64_t update, double full) {
  const double s = static_cast<double>(update), warmup = static_cast<double>(d.warmup_steps);
  if (s <= warmup) return full * s / warmup;
  if (d.schedule == RateSchedule::piecewise) return full * ratio_at(rate_points(d.rate_points), s);
  if (d.schedule == RateSchedule::inverse_sqrt) {
    const double w = std::max(warmup, 1.0);
    return full * std::max(d.min_ratio, std::sqrt(w / std::max(s, w)));
  }
  const double p = progress(s - warmup, static_cast<double>(d.decay_steps));
  const double fraction = decay_fraction(d, static_cast<double>(steps), s, p);
  return full * (d.min_ratio + (1 - d.min_ratio) * fraction);
}

}  // namespace

double learning_rate(const OptimizerDeck& d, std::int64_t steps, std::int64_t s, double full) {
  const std::int64_t from = d.cooldown_from;
  if (from == 0 || s <= from) return scheduled_rate(d, steps, s, full);
  const double rate = scheduled_rate(d, steps, from, full), floor = std::min(rate, full * d.min_ratio);
  return floor +
         (rate - floor) * tail(d.wsd_tail, progress(static_cast<double>(s - from), static_cast<double>(steps - from)));
}

}  // namespace forge
