#include "schedule/from_deck.hpp"

#include <string>

#include "config/check_parts.hpp"
#include "config/schedule_name.hpp"
#include "config/text.hpp"
#include "schedule/csv.hpp"
#include "schedule/generate.hpp"

namespace forge {

namespace {

constexpr std::size_t most_file_bytes = std::size_t{128} << 20;

// A file's schedule has its own name and chunks: those of the deck must be the defaults, or the same.
void check_file(const Schedule& schedule, const Deck& deck, int pp, int microbatches, Report& report) {
  const ScheduleDeck& s = deck.schedule;
  const std::string file = "schedule.file " + shown(s.file);
  const auto expect = [&](const char* what, int in_file, const std::string& wanted, std::int64_t value) {
    if (in_file != value)
      report.add("", file + " is made for " + std::to_string(in_file) + " " + what + ", but " + wanted +
                         "; legal: a file for " + std::to_string(value));
  };
  expect("ranks", schedule.ranks, equation("mesh.pp", pp), pp);
  expect("microbatches", schedule.microbatches,
         "train.global_batch_sequences / (data-parallel size x train.microbatch_sequences) = " +
             std::to_string(microbatches),
         microbatches);
  if (s.virtual_stages != 1)
    expect("chunks per rank", schedule.chunks_per_rank, equation("schedule.virtual_stages", s.virtual_stages),
           s.virtual_stages);
  if (schedule.lowered) report.add("", file + " is lowered: transfers follow from it; legal: compute");
  if (s.name != ScheduleDeck{}.name && name_of(s.name) != schedule.name)
    report.add("", "schedule.name = " + std::string(name_of(s.name)) + ", but " + file + " is named " +
                       shown(schedule.name) + "; legal: the same name, or no schedule.name");
}

}  // namespace

std::int64_t microbatches_of(const Deck& deck, std::int64_t global_batch) {
  return global_batch / (deck.train.microbatch_sequences * deck.mesh.dp_replicate * deck.mesh.dp_shard);
}

std::int64_t microbatches_of(const Deck& deck) {
  return microbatches_of(deck, deck.train.global_batch_sequences);
}

Schedule schedule_of(const Deck& deck, int pp, int microbatches) {
  const ScheduleDeck& s = deck.schedule;
  const bool pairs = deck.train.overlap == Overlap::pairs;
  if (s.file.empty()) return generate({s.name, pp, static_cast<int>(s.virtual_stages), microbatches, 0, pairs});
  Schedule schedule = read_schedule_csv(read_text_file(s.file, most_file_bytes, "schedule.file"), s.file);
  Report report;
  check_file(schedule, deck, pp, microbatches, report);
  report.throw_if_any("schedule.file " + shown(s.file));
  return schedule;
}

}  // namespace forge
