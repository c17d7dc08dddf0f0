#include "in_pairs.hpp"

#include <algorithm>

#include "config/schedule_name.hpp"
#include "enumerate.hpp"
#include "run_threads.hpp"

namespace forge::test {

namespace {

std::string difference_to_the_bit(const LayoutResult& a, const LayoutResult& b) {
  const auto differ = [](const auto& x, const auto& y, const char* what) {
    return x == y ? std::string() : std::string(what) + " differ";
  };
  for (const std::string& text :
       {a.problem, b.problem, differ(a.loss, b.loss, "losses"), differ(a.total_loss, b.total_loss, "total losses"),
        differ(a.grad_norm, b.grad_norm, "norms"), differ(a.gradients, b.gradients, "gradients"),
        differ(a.routing, b.routing, "routings"), differ(a.losses, b.losses, "losses of training"),
        differ(a.reports, b.reports, "reports"), differ(a.router_reports, b.router_reports, "reports of routers"),
        differ(a.validation_loss, b.validation_loss, "losses after training"),
        differ(a.parameters, b.parameters, "parameters")})
    if (!text.empty()) return text;
  return a.gradients.empty() ? "there are no gradients" : "";
}

}  // namespace

Deck in_pairs(Deck deck) {
  deck.train.overlap = Overlap::pairs;
  if (!has_pairs(deck.schedule.name)) deck.schedule = {};
  if (deck.schedule.name == ScheduleName::zb_v) deck.model.tied_embeddings = false;
  deck.train.microbatch_sequences = 1;
  const std::int64_t least = least_paired(deck.schedule.name, static_cast<int>(deck.mesh.pp));
  std::int64_t& batch = deck.train.global_batch_sequences;
  batch = std::max(batch, least * deck.mesh.dp_replicate * deck.mesh.dp_shard);
  return deck;
}

std::string equals_passes_alone(const Deck& deck) {
  Deck alone = deck;
  alone.train.overlap = Overlap::none;
  Deck together = deck;
  for (Deck* d : {&alone, &together})
    if (const std::string rule = illegality(*d); !rule.empty()) return rule;
  const RunOptions options{.train_steps = 2};
  return difference_to_the_bit(run_threads(together, options), run_threads(alone, options));
}

}  // namespace forge::test
