#include <algorithm>

#include "config/keys.hpp"
#include "config/optimizer_table.hpp"
#include "config/read.hpp"
#include "core/random.hpp"
#include "core/to_size.hpp"
#include "train/restart.hpp"

namespace forge {

namespace {

// Averages of the weights are kept as differences, which other values would give another meaning.
bool defines_averages(const Deck& deck, const Key& key) {
  return row_of(deck.optimizer.name).averages && key.section == "optimizer" &&
         (key.name == "beta1" || key.name == "warmup_steps");
}

std::string or_reset(const Key& key) {
  return key.section == "optimizer" ? ", or checkpoint.reset_optimizer: true" : "";
}

bool resets_optimizer(const Deck& now, const Deck& then) {
  return now.checkpoint.reset_optimizer && !then.checkpoint.reset_optimizer;
}

Deck deck_of_checkpoint(const std::string& text, const std::string& where) {
  try {
    return read_deck(text, where + ": its deck", {}, Needs::training);
  } catch (const BadInput& error) {
    throw BadCheckpoint(error.what());
  }
}

}  // namespace

bool resets_optimizer(const Deck& now, const std::string& checkpoint_deck, const std::string& where) {
  return resets_optimizer(now, deck_of_checkpoint(checkpoint_deck, where));
}

DeckChanges deck_changes(const Deck& now, const std::string& checkpoint_deck, const std::string& where,
                         const std::string& section) {
  const Deck then = deck_of_checkpoint(checkpoint_deck, where);
  DeckChanges changes;
  for (const Key& key : all_keys()) {
    const std::string ours = value_text(key, now), theirs = value_text(key, then);
    if (ours == theirs || (!section.empty() && key.section != section)) continue;
    const bool legal = (key.on_restart == OnRestart::may_change && !defines_averages(then, key)) ||
                       (resets_optimizer(now, then) && key.section == "optimizer");
    (legal ? changes.legal : changes.illegal)
        .push_back(key.qualified() + " = " + ours + ", the checkpoint has " + theirs +
                   (legal ? "" : "; legal: " + theirs + or_reset(key)));
  }
  return changes;
}

std::string data_fingerprint(const TokenSet& set) {
  constexpr std::int64_t looked_at = 64;
  std::vector<std::int32_t> tokens(to_size(set.sequence_tokens() + 1));
  std::uint64_t sum = 0;
  const std::int64_t n = set.samples();
  for (std::int64_t i = 0; i < std::min(n, looked_at); ++i) {
    set.read(n <= looked_at ? i : i * (n - 1) / (looked_at - 1), tokens);
    for (const std::int32_t token : tokens) sum = mix(sum, static_cast<std::uint64_t>(token));
  }
  return std::to_string(set.tokens()) + " tokens, " + std::to_string(n) + " samples, contents " + std::to_string(sum);
}

}  // namespace forge
