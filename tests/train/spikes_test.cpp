#include "train/spikes.hpp"

#include <gtest/gtest.h>

#include "checkpoint/manifest.hpp"
#include "data/sample_stream.hpp"

namespace forge::test {
namespace {

TrainDeck watching(std::int64_t window) {
  TrainDeck deck;
  deck.spike = SpikeAction::skip;
  deck.spike_loss = 2;
  deck.spike_norm = 3;
  deck.spike_window = window;
  deck.spike_most = 2;
  return deck;
}

TEST(Spikes, AreAboveAMultipleOfTheMedian) {
  SpikeWatch watch(watching(3), {});
  for (const double loss : {4.0, 1.0, 2.0}) {
    EXPECT_EQ(watch.spike_in(1e9, 1e9), "");  // fewer steps than the window
    watch.add(loss, 1);
  }
  EXPECT_EQ(watch.spike_in(4, 3), "");
  EXPECT_EQ(watch.spike_in(4.5, 1), "loss 4.5 is 2.25 times the median of 3 steps");
  EXPECT_EQ(watch.spike_in(4, 6), "gradient norm 6 is 6.00 times the median of 3 steps");
  watch.add(1, 1);  // 4 leaves the window
  EXPECT_NE(watch.spike_in(2.1, 1), "");
  watch.add_act();
  EXPECT_EQ(watch.action(), SpikeAction::skip);
  watch.add_act();
  EXPECT_EQ(watch.action(), SpikeAction::log);
}

TEST(Spikes, StateIsTextAndBack) {
  const SpikeState state{{{3, 9}, {12, 12}}, {0.1, 1.0 / 3}, {2e-300, 7}, 4};
  EXPECT_EQ(spike_state_from(to_text(state), "x"), state);
  EXPECT_EQ(to_text(SpikeState{}), "");
  for (const char* text : {"acts -1", "acts x", "excluded 3 2", "excluded 1 2\nexcluded 2 4", "excluded -1 2", "step 1",
                           "step inf 1", "step nan 1", "other 1 2", "acts 1 2 3"})
    EXPECT_THROW(spike_state_from(text, "x"), BadCheckpoint) << text;
}

TEST(Spikes, ReturnsKeepWhatIsExcluded) {
  SpikeWatch watch(watching(2), {{{4, 5}}, {1, 2}, {1, 2}, 1});
  watch.add_act();
  watch.go_back({{{8, 9}}, {7, 8}, {9, 9}, 0}, {{10, 11}, {6, 6}});
  const SpikeState wanted{{{4, 6}, {8, 11}}, {7, 8}, {9, 9}, 2};
  EXPECT_EQ(watch.state(), wanted);
}

TEST(Spikes, PlacesThatAreLeftOut) {
  SampleStream stream({"", nullptr, {SampleOrder::sequential, 0, 100}});
  stream.exclude({{0, 1}, {4, 4}, {6, 8}});
  std::vector<std::int64_t> taken;
  for (std::int64_t n = 0; n < 5; ++n) taken.push_back(stream.place(n));
  EXPECT_EQ(taken, (std::vector<std::int64_t>{2, 3, 5, 9, 10}));
  EXPECT_EQ(stream.places(1, 3), (std::vector<NumberRange>{{3, 3}, {5, 5}, {9, 9}}));
  for (std::int64_t n = 0; n < 5; ++n) EXPECT_EQ(stream.drawn(0, n), n) << n;
}

}  // namespace
}  // namespace forge::test
