#include "comm/tracks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "comm/thread_communicator.hpp"
#include "core/error.hpp"

namespace forge {
namespace {

// A track that says a letter between its exchanges; `sent` has the exchanges in the order of their stream.
struct Said {
  Tracks& tracks;
  std::string& text;
  std::string& sent;

  void track(char letter, int exchanges) const {
    for (int i = 0; i < exchanges; ++i) {
      text += letter;
      tracks.exchange([this, letter](Stream& stream) { stream.run([this, letter] { sent += letter; }); });
    }
    text += letter;
  }
};

TEST(Tracks, TakeTurnsAtEachExchange) {
  Stream compute, exchange(1, Stream::Kind::Worker);
  Tracks tracks(compute, exchange);
  std::string text, sent;
  const Said said{tracks, text, sent};
  for (int run = 0; run < 2; ++run) {
    text.clear();
    sent.clear();
    std::string seen;
    const auto sees = [&](int track) { seen += track < 0 ? "." : std::to_string(track); };
    tracks.run([&] { said.track('F', 2); }, [&] { said.track('B', 4); }, sees);
    EXPECT_EQ(text, "FBFBFBBB");
    EXPECT_EQ(sent, "FBFBBB");
    EXPECT_EQ(seen, "01010111.");
  }
  EXPECT_FALSE(tracks.takes(compute));
}

TEST(Tracks, GoOnAloneWhereTheNumberOfExchangesIsNotKnown) {
  Stream compute, exchange(1, Stream::Kind::Worker);
  Tracks tracks(compute, exchange);
  std::string text, sent;
  const Said said{tracks, text, sent};
  const auto alone = [&] {
    said.track('F', 1);
    const Tracks::Alone rounds(&tracks);
    said.track('f', 2);
  };
  tracks.run(alone, [&] { said.track('B', 2); });
  EXPECT_EQ(text, "FBFfffBB");
  EXPECT_EQ(sent, "FBffB");
}

TEST(Tracks, AnErrorOfOneEndsBoth) {
  Stream compute, exchange(1, Stream::Kind::Worker);
  Tracks tracks(compute, exchange);
  int ended = 0;
  struct Ends {
    int& count;
    ~Ends() { ++count; }
  };
  const auto waits = [&] {
    const Ends ends{ended};
    tracks.exchange([](Stream&) {});
    ended += 10;
  };
  const auto fails = [&] {
    const Ends ends{ended};
    throw BadInput("the second one fails");
  };
  EXPECT_THROW(tracks.run(waits, fails), BadInput);
  EXPECT_EQ(ended, 2);
  EXPECT_THROW(tracks.run(fails, waits), BadInput);
  EXPECT_EQ(ended, 3) << "the second one didn't begin";
  tracks.run(waits, waits);
  EXPECT_EQ(ended, 25);
}

// Where one rank sends to another, the third has nothing to send, and takes its turns.
TEST(Tracks, AreInStepOnAllRanks) {
  run_ranks(3, [](Communicator& world) {
    Stream compute, exchange(1, Stream::Kind::Worker);
    Tracks tracks(compute, exchange);
    world.take_turns(&tracks);
    std::array<double, 2> sums{}, received{};
    const auto track = [&](std::size_t number) {
      double in = 1 + static_cast<double>(number);
      for (int i = 0; i < 10; ++i) {
        std::array<std::int64_t, 3> send{}, receive{};
        if (i % 2 == 0 && world.rank() == 0) send[1] = 1;
        if (i % 2 == 0 && world.rank() == 1) receive[0] = 1;
        world.all_to_all(compute, &in, send, &received[number], receive, DType::f64);
        for (std::size_t again = 0; again <= number; ++again) {
          double sum = in;
          world.all_reduce(compute, View<double, 1>(&sum, {{1}}));
          sums[number] += sum;
        }
      }
    };
    tracks.run([&] { track(0); }, [&] { track(1); });
    EXPECT_EQ(sums[0], 30);
    EXPECT_EQ(sums[1], 120);
    EXPECT_EQ(received[1], world.rank() == 1 ? 2 : 0);
    world.take_turns(nullptr);
  });
}

}  // namespace
}  // namespace forge
