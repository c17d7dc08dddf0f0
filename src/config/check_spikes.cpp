#include <string_view>
#include <variant>

#include "config/check_parts.hpp"
#include "config/keys.hpp"

namespace forge {

void check_spikes(const Deck& deck, Report& report) {
  const TrainDeck& t = deck.train;
  if (t.spike == SpikeAction::none) {
    for (const Key& key : all_keys())
      if (key.section == "train" && std::string_view(key.name).starts_with("spike_") && !is_default(key, deck))
        report.add(key.qualified() + " = " + value_text(key, deck) +
                   " without train.spike; legal: " + default_text(key) + ", or spike: log | skip | back");
    return;
  }
  for (const char* name : {"spike_loss", "spike_norm"}) {
    const Key& key = *find_key("train", name);
    const double factor = std::get<NumberKey>(key.kind).access.get(deck);
    if (factor != 0 && factor <= 1)
      report.add(key.qualified() + " = " + value_text(key, deck) +
                 ": half of all steps are above the median; legal: 0, or more than 1");
  }
  if (t.spike_loss == 0 && t.spike_norm == 0)
    report.add(
        "train.spike_loss = 0 and train.spike_norm = 0: there are no spikes; legal: one of them above 1, or "
        "spike: none");
  if (t.spike == SpikeAction::back && deck.checkpoint.directory.empty())
    report.add("train.spike = back without checkpoint.directory; legal: a directory of checkpoints, or spike: skip");
}

void check_replicas(const Deck& deck, Report& report) {
  if (deck.train.check_replicas_steps == 0 && deck.train.replicas_differ != ReplicaAction::stop)
    report.add(
        "train.replicas_differ = repair without train.check_replicas_steps; legal: a number of steps, or "
        "replicas_differ: stop");
}

}  // namespace forge
