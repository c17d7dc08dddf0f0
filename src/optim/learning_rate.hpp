#pragma once

#include <cstdint>

#include "config/deck.hpp"
#include "config/mixture_keys.hpp"

namespace forge {

// Learning rate of update s = 1, 2, …, of `steps`. Warm-up: learning_rate · s / warmup_steps. Then, with
// p = clamp((s − warmup_steps) / decay_steps, 0, 1) and a floor of min_ratio:
//   constant      1
//   linear        1 − (1 − min) p
//   cosine        min + (1 − min)(1 + cos πp) / 2                       (Loshchilov & Hutter 2017)
//   wsd           1, then over the last min(decay_steps, steps − warmup_steps) a linear, cosine or 1 − √p tail
//                 (Hu et al. 2024; Hägele et al. 2024)
//   inverse_sqrt  √(w / max(s, w)), w = max(warmup_steps, 1); not below min
//   rex           min + (1 − min)(1 − p) / (1 − p/2)                    (Chen et al. 2022)
//   cosine_restarts  cosine over periods of decay_steps · restart_factor^i, i = 0, 1, …, each from 1 on
//                 (Loshchilov & Hutter 2017, SGDR)
//   piecewise     straight lines between rate_points; before the first and behind the last its ratio; no floor
// From cooldown_from on, c > 0: floor + (rate(c) − floor) · tail((s − c) / (steps − c)) with the tails of wsd.
// `full`: in the place of learning_rate.
double learning_rate(const OptimizerDeck& deck, std::int64_t steps, std::int64_t s, double full);
inline double learning_rate(const OptimizerDeck& deck, std::int64_t steps, std::int64_t s) {
  return learning_rate(deck, steps, s, deck.learning_rate);
}

// The rates of a step: every full rate follows the deck's schedule, and its phases (data.phases).
struct StepRates {
  const OptimizerDeck& deck;
  std::int64_t steps, step;
  double factor = 1;

  double of(double full) const { return factor * learning_rate(deck, steps, step, full); }
};
inline StepRates rates_of_step(const Deck& deck, std::int64_t step) {
  return {deck.optimizer, deck.train.steps, step, rate_factor(deck, step)};
}

}  // namespace forge
