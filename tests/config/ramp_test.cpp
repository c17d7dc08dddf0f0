#include <limits>

#include "config/batch_ramp.hpp"
#include "config/mixture_keys.hpp"
#include "config/schedule_name.hpp"
#include "small_deck.hpp"

namespace forge {
namespace {

using test::checked;
using test::expect_refused;

// What the class computes from its pieces, counted step by step.
TEST(BatchSizes, AreTheSumsOverSteps) {
  BatchSizes batches(8);
  ASSERT_TRUE(batches.change(1, 2));
  ASSERT_TRUE(batches.change(4, 4));
  ASSERT_TRUE(batches.change(9, 3));
  ASSERT_FALSE(batches.change(9, 8));
  constexpr std::int64_t T = 5;
  std::int64_t places = 0;
  for (std::int64_t s = 1; s <= 20; ++s) {
    const std::int64_t G = s < 4 ? 2 : s < 9 ? 4 : 3;
    EXPECT_EQ(batches.of(s), G);
    EXPECT_EQ(batches.before(s), places);
    // Step s is the first one behind each of the tokens that step s − 1 has trained on.
    for (std::int64_t tokens = places * T; s > 1 && tokens > batches.before(s - 1) * T; --tokens)
      EXPECT_EQ(batches.first_step_behind(tokens, T), s) << tokens;
    places += G;
  }
  EXPECT_EQ(batches.largest(), 4);
  EXPECT_EQ(batches.text(), "2 from step 1, 4 from step 4, 3 from step 9");
  EXPECT_EQ(BatchSizes(8).text(), "");
  EXPECT_EQ(BatchSizes(8).before(11), 80);
  EXPECT_EQ(BatchSizes(8).before(std::int64_t{1} << 61), std::numeric_limits<std::int64_t>::max());
}

TEST(BatchSizes, AreTheSameAsFarAsAStep) {
  BatchSizes ramped(8);
  ramped.change(1, 2);
  ramped.change(4, 8);
  EXPECT_TRUE(ramped.same_through(3, BatchSizes(2)));
  EXPECT_FALSE(ramped.same_through(4, BatchSizes(2)));
  EXPECT_FALSE(BatchSizes(2).same_through(4, ramped));
  EXPECT_FALSE(ramped.same_through(1, BatchSizes(8)));
}

// An entry's tokens, and those of data.phases, count the batches before it.
TEST(Check, BatchRamps) {
  const Deck deck = checked([](Deck& d) {
    const std::int64_t T = d.train.sequence_tokens;
    d.train.batch_ramp = {{1, 0, 2}, {0, 3 * 2 * T, 4}, {0, 3 * 2 * T + 1 * 4 * T + 1, 8}};
    d.data.phases = {{0, 10 * T, {}, T / 2}};
  });
  EXPECT_EQ(BatchSizes(deck.train).text(), "2 from step 1, 4 from step 4, 8 from step 6");
  EXPECT_EQ(first_step_of(deck.data.phases[0], deck.train), 5);

  const auto refused = [](std::vector<RampDeck> ramp, std::initializer_list<const char*> words, int world = 1) {
    expect_refused([&](Deck& d) { d.train.batch_ramp = ramp; }, words, world);
  };
  refused({{5, 7, 4}}, {"train.batch_ramp [0] gives both of from_step and from_tokens"});
  refused({{0, 0, 4}}, {"train.batch_ramp [0] gives none of from_step and from_tokens"});
  refused({{5, 0, 0}}, {"train.batch_ramp [0] has no global_batch_sequences"});
  refused({{5, 0, 16}},
          {"train.batch_ramp[0].global_batch_sequences = 16; legal: at most", "train.global_batch_sequences = 8"});
  refused({{5, 0, 2}, {5, 0, 4}}, {"train.batch_ramp[1] begins with step 5, the one before with step 5"});
  refused({{5, 0, 2}, {0, 1, 4}}, {"train.batch_ramp[1] begins with step 2"});
  refused({{5, 0, 2}, {7, 0, 3}}, {"train.batch_ramp[1].global_batch_sequences = 3 is no multiple of",
                                   "train.microbatch_sequences = 2", "nearest legal: 2 or 4"});
  refused({{1, 0, 2}}, {"train.batch_ramp[0].global_batch_sequences = 2 is no multiple of", "data-parallel size 2"}, 2);
  // Interleaved 1F1B works in groups of pp microbatches.
  expect_refused(
      [](Deck& d) {
        d.train.batch_ramp = {{1, 0, 2}};
        d.mesh.pp = 2;
        d.model.layers = 4;
        d.schedule.virtual_stages = 2;
        d.schedule.name = ScheduleName::interleaved;
      },
      {"train.batch_ramp[0].global_batch_sequences = 2: ", "microbatches"}, 2);
}

}  // namespace
}  // namespace forge
