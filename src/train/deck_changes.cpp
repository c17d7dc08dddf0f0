#include <algorithm>

#include "config/batch_ramp.hpp"
#include "config/keys.hpp"
#include "config/mixture_keys.hpp"
#include "config/optimizer_table.hpp"
#include "config/read.hpp"
#include "core/random.hpp"
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

// Keys that say together which batch each step has.
bool is_batch(const Key& key) {
  return key.section == "train" && (key.name == "global_batch_sequences" || key.name == "batch_ramp");
}

std::string or_later(const Key& key, std::int64_t step) {
  return is_batch(key) ? ", or others that leave the batches as far as step " + std::to_string(step) + " as they are"
                       : "";
}

// A key that a deck leaves to others of its keys: it changes with them, and nobody set it.
bool is_derived(const Deck& deck, const Key& key) {
  const bool decay = key.section == "optimizer" && key.name == "decay_steps";
  return decay &&
         deck.optimizer.decay_steps == std::max<std::int64_t>(deck.train.steps - deck.optimizer.warmup_steps, 0);
}

bool resets_optimizer(const Deck& now, const Deck& then) {
  return now.checkpoint.reset_optimizer && !then.checkpoint.reset_optimizer;
}

void drop_later_phases(Deck& deck, std::int64_t step) {
  std::erase_if(deck.data.phases, [&](const PhaseDeck& phase) { return first_step_of(phase, deck.train) > step; });
}

Deck deck_of_checkpoint(const std::string& text, const std::string& where) {
  try {
    return read_deck(text, where + ": its deck", {}, Needs::training, DeckWriter::forge);
  } catch (const BadInput& error) {
    throw BadCheckpoint(error.what());
  }
}

}  // namespace

bool resets_optimizer(const Deck& now, const std::string& checkpoint_deck, const std::string& where) {
  return resets_optimizer(now, deck_of_checkpoint(checkpoint_deck, where));
}

DeckChanges deck_changes(const Deck& now, const std::string& checkpoint_deck, const std::string& where,
                         std::int64_t step, const std::string& section) {
  Deck then = deck_of_checkpoint(checkpoint_deck, where);
  const Deck as_written = then;
  // Phases that haven't begun may be others.
  Deck now_begun = now;
  drop_later_phases(now_begun, step);
  drop_later_phases(then, step);
  const bool same_batches = BatchSizes(now.train).same_through(step, BatchSizes(then.train));
  DeckChanges changes;
  for (const Key& key : all_keys()) {
    const std::string ours = value_text(key, now), theirs = value_text(key, as_written);
    if (ours == theirs || (!section.empty() && key.section != section)) continue;
    if (is_derived(now, key) && is_derived(as_written, key)) continue;
    const bool same = is_batch(key) ? same_batches : compared_text(key, now_begun) == compared_text(key, then);
    const bool legal = same || (key.on_restart == OnRestart::may_change && !defines_averages(then, key)) ||
                       (resets_optimizer(now, then) && key.section == "optimizer");
    (legal ? changes.legal : changes.illegal)
        .push_back(key.qualified() + " = " + ours + ", the checkpoint has " + theirs +
                   (legal ? "" : "; legal: " + theirs + or_reset(key) + or_later(key, step)));
  }
  return changes;
}

std::string data_fingerprint(const TokenSet& set) {
  constexpr std::int64_t looked_at = 64;
  Sample sample(set.sequence_tokens());
  std::uint64_t sum = 0;
  const std::int64_t n = set.samples();
  const bool plain = set.options().mask_files.empty() && !set.plan();
  for (std::int64_t i = 0; i < std::min(n, looked_at); ++i) {
    set.read(n <= looked_at ? i : i * (n - 1) / (looked_at - 1), sample);
    for (const std::int32_t token : sample.tokens) sum = mix(sum, static_cast<std::uint64_t>(token));
    if (plain) continue;
    for (const std::int32_t label : sample.labels) sum = mix(sum, static_cast<std::uint64_t>(label));
  }
  return std::to_string(set.tokens()) + " tokens, " + std::to_string(n) + " samples, contents " + std::to_string(sum);
}

std::string data_fingerprint(const SampleStream& data) {
  std::string text;
  for (const DataSource& source : data.sources())
    text +=
        (text.empty() ? "" : "; ") + (source.name.empty() ? "" : source.name + ": ") + data_fingerprint(*source.set);
  return text;
}

std::vector<std::string> younger_files(const DataDeck& data, std::filesystem::file_time_type time) {
  std::vector<std::string> paths = data.files, younger;
  paths.insert(paths.end(), data.mask_files.begin(), data.mask_files.end());
  for (const SourceDeck& source : data.sources) {
    paths.insert(paths.end(), source.files.begin(), source.files.end());
    paths.insert(paths.end(), source.mask_files.begin(), source.mask_files.end());
  }
  for (const std::string& path : paths) {
    std::error_code missing;
    auto written = std::filesystem::last_write_time(path, missing);
    if (missing) written = std::filesystem::last_write_time(path + ".bin", missing);  // a Megatron pair by its stem
    if (!missing && written > time) younger.push_back(path);
  }
  return younger;
}

}  // namespace forge
