#include "app/show_parts.hpp"

#include <algorithm>
#include <set>

#include "config/optimizer_table.hpp"
#include "config/rate_points.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "optim/learning_rate.hpp"

namespace forge {

namespace {

// Steps to show: some over the whole run, and those where the schedule turns.
std::set<std::int64_t> shown_steps(const Deck& deck) {
  const OptimizerDeck& d = deck.optimizer;
  const std::int64_t steps = deck.train.steps;
  constexpr std::int64_t over_the_run = 24;
  std::set<std::int64_t> shown;
  const auto add = [&](std::int64_t step) {
    if (step >= 1 && step <= steps) shown.insert(step);
  };
  for (std::int64_t i = 0; i <= over_the_run; ++i) add(1 + (steps - 1) * i / over_the_run);
  add(d.warmup_steps);
  add(d.cooldown_from);
  if (d.schedule == RateSchedule::wsd) add(std::max(steps - d.decay_steps, d.warmup_steps));
  for (const RatePoint& point : rate_points(d.rate_points)) add(point.step);
  for (const std::int64_t turn : BatchSizes(deck.train).turns()) {
    add(turn - 1);
    add(turn);
  }
  for (const PhaseDeck& phase : deck.data.phases) add(first_step_of(phase, deck.train));
  return shown;
}

// Whether some tensors follow AdamW's rate, another one.
bool has_two_rates(const OptimizerDeck& d) {
  return row_of(d.name).whole_matrices() && d.adam_learning_rate > 0;
}

}  // namespace

std::vector<JsonLine> rates_json(const RunSetup& setup) {
  const OptimizerDeck& d = setup.deck.optimizer;
  std::vector<JsonLine> list;
  for (const std::int64_t s : shown_steps(setup.deck)) {
    const StepRates rates = rates_of_step(setup.deck, s);
    JsonLine line;
    line.add("step", s).add("tokens", setup.tokens_through(s)).add("sequences", setup.batches.of(s));
    line.add("rate", rates.of(d.learning_rate));
    if (has_two_rates(d)) line.add("adam_rate", rates.of(d.adam_learning_rate));
    list.push_back(line);
  }
  return list;
}

std::string rate_text(const RunSetup& setup) {
  constexpr double bar = 50;
  const OptimizerDeck& d = setup.deck.optimizer;
  const bool two_rates = has_two_rates(d);
  std::string text = "learning rate and batch over the run\n      step         tokens  sequences          rate";
  text += two_rates ? "   AdamW's rate\n" : "\n";
  double most = 0;
  const std::set<std::int64_t> shown = shown_steps(setup.deck);
  for (const std::int64_t s : shown) most = std::max(most, rates_of_step(setup.deck, s).of(d.learning_rate));
  for (const std::int64_t s : shown) {
    const StepRates rates = rates_of_step(setup.deck, s);
    text += formatted("%10lld %14lld %10lld  %12.4e", static_cast<long long>(s),
                      static_cast<long long>(setup.tokens_through(s)), static_cast<long long>(setup.batches.of(s)),
                      rates.of(d.learning_rate));
    if (two_rates) text += formatted("   %12.4e", rates.of(d.adam_learning_rate));
    text +=
        "  " +
        std::string(most > 0 ? to_size(static_cast<std::int64_t>(bar * rates.of(d.learning_rate) / most)) : 0, '#') +
        "\n";
  }
  return text;
}

}  // namespace forge
