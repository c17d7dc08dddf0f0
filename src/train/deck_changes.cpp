#include <algorithm>
#include <set>

#include "config/keys.hpp"
#include "config/read.hpp"
#include "core/random.hpp"
#include "train/restart.hpp"

namespace forge {

namespace {

// What a restart may change: where and how fast the run goes on, not what is computed.
bool may_change(const Key& key) {
  static const std::set<std::string> sections{"mesh", "schedule", "checkpoint", "output", "machine"};
  static const std::set<std::string> keys{"model.hf",
                                          "model.load_weights",
                                          "model.dropout",
                                          "model.initial_std",
                                          "model.residual_scaling",
                                          "model.auxiliary_loss_coefficient",
                                          "model.auxiliary_loss_scope",
                                          "model.router_z_coefficient",
                                          "model.router_bias_rate",
                                          "model.router_jitter",
                                          "model.forced_balance",
                                          "model.capacity_factor",
                                          "model.capacity_drop",
                                          "model.capacity_scope",
                                          "model.dispatch",
                                          "model.dispatch_rows",
                                          "model.mtp_loss_factor",
                                          "train.steps",
                                          "train.microbatch_sequences",
                                          "train.recompute",
                                          "train.zero_stage",
                                          "train.accumulate",
                                          "train.gather",
                                          "train.z_loss_coefficient",
                                          "train.head_chunk_rows",
                                          "train.max_not_finite_steps",
                                          "train.validate_every_steps",
                                          "train.validation_sequences",
                                          "optimizer.learning_rate",
                                          "optimizer.beta1",
                                          "optimizer.beta2",
                                          "optimizer.epsilon",
                                          "optimizer.weight_decay",
                                          "optimizer.clip_norm",
                                          "optimizer.schedule",
                                          "optimizer.warmup_steps",
                                          "optimizer.decay_steps",
                                          "optimizer.min_ratio",
                                          "optimizer.wsd_tail",
                                          "data.files",
                                          "data.validation_files",
                                          "data.dtype"};
  return sections.contains(key.section) || keys.contains(key.qualified());
}

}  // namespace

DeckChanges deck_changes(const Deck& now, const std::string& checkpoint_deck, const std::string& where,
                         const std::string& section) {
  Deck then;
  try {
    then = read_deck(checkpoint_deck, where + ": its deck", {}, Needs::training);
  } catch (const BadInput& error) {
    throw BadCheckpoint(error.what());
  }
  DeckChanges changes;
  for (const Key& key : all_keys()) {
    const std::string ours = value_text(key, now), theirs = value_text(key, then);
    if (ours == theirs || (!section.empty() && key.section != section)) continue;
    const bool legal = may_change(key);
    (legal ? changes.legal : changes.illegal)
        .push_back(key.qualified() + " = " + ours + ", the checkpoint has " + theirs +
                   (legal ? "" : "; legal: " + theirs));
  }
  return changes;
}

std::string data_fingerprint(const TokenSet& set) {
  constexpr std::int64_t looked_at = 64;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(set.sequence_tokens() + 1));
  std::uint64_t sum = 0;
  const std::int64_t n = set.samples();
  for (std::int64_t i = 0; i < std::min(n, looked_at); ++i) {
    set.read(n <= looked_at ? i : i * (n - 1) / (looked_at - 1), tokens);
    for (const std::int32_t token : tokens) sum = mix(sum, static_cast<std::uint64_t>(token));
  }
  return std::to_string(set.tokens()) + " tokens, " + std::to_string(n) + " samples, contents " + std::to_string(sum);
}

}  // namespace forge
