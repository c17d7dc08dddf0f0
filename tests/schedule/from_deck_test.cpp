#include "schedule/from_deck.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cases.hpp"
#include "config/schedule_name.hpp"
#include "schedule/csv.hpp"

namespace forge {
namespace {

// A deck with a schedule in a file, which ends with the object.
class FileDeck {
 public:
  explicit FileDeck(const Schedule& schedule) {
    std::string pattern = (std::filesystem::temp_directory_path() / "forge_schedule_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
    deck.schedule.file = path_ / "schedule.csv";
    std::ofstream(deck.schedule.file) << write_schedule_csv(schedule);
  }
  ~FileDeck() { std::filesystem::remove_all(path_); }
  FileDeck(const FileDeck&) = delete;

  Deck deck;

 private:
  std::filesystem::path path_;
};

std::string refusal(const Deck& deck, int pp, int microbatches) {
  try {
    schedule_of(deck, pp, microbatches);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST(FromDeck, MicrobatchesOfAStep) {
  Deck deck;
  deck.mesh.dp_replicate = 2;
  deck.mesh.dp_shard = 3;
  deck.train.global_batch_sequences = 48;
  deck.train.microbatch_sequences = 4;
  EXPECT_EQ(microbatches_of(deck), 2);
}

TEST(FromDeck, EveryGenerator) {
  for (const ScheduleRequest& request : legal_requests(3, 6, 2)) {
    Deck deck;
    deck.schedule.name = request.name;
    deck.schedule.virtual_stages = request.chunks;
    const Schedule expected = generate(request), made = schedule_of(deck, request.ranks, request.microbatches);
    EXPECT_EQ(made.actions, expected.actions) << text_of(request);
    EXPECT_EQ(made.places, expected.places) << text_of(request);
  }
}

TEST(FromDeck, AFileIsTheSchedule) {
  const Schedule written = generate({ScheduleName::interleaved, 2, 2, 4});
  FileDeck f(written);
  EXPECT_EQ(schedule_of(f.deck, 2, 4).actions, written.actions);
  f.deck.schedule.name = ScheduleName::interleaved;  // its own name and chunks may stand in the deck
  f.deck.schedule.virtual_stages = 2;
  EXPECT_EQ(schedule_of(f.deck, 2, 4).actions, written.actions);
}

TEST(FromDeck, AFileForOtherNumbersIsRefusedInOneReport) {
  FileDeck f(generate({ScheduleName::interleaved, 2, 2, 4}));
  f.deck.schedule.name = ScheduleName::gpipe;
  f.deck.schedule.virtual_stages = 3;
  const std::string text = refusal(f.deck, 4, 8);
  for (const char* part : {"4 errors", "made for 2 ranks, but mesh.pp = 4", "made for 4 microbatches", "= 8; legal",
                           "2 chunks per rank, but schedule.virtual_stages = 3", "schedule.name = gpipe"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(FromDeck, WhatIsNoComputeScheduleIsRefused) {
  const Schedule compute = generate({ScheduleName::one_f_one_b, 2, 1, 4});
  EXPECT_NE(refusal(FileDeck(lower(compute)).deck, 2, 4).find("is lowered"), std::string::npos);
  Schedule broken = compute;
  broken.actions[0].pop_back();
  FileDeck f(broken);
  EXPECT_NE(refusal(f.deck, 2, 4).find("schedule.csv: schedule 1f1b"), std::string::npos) << refusal(f.deck, 2, 4);
  Deck none;
  none.schedule.file = "/nonexistent/schedule.csv";
  EXPECT_NE(refusal(none, 2, 4).find("/nonexistent/schedule.csv"), std::string::npos);
}

}  // namespace
}  // namespace forge
