#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cases.hpp"
#include "comm/agreement.hpp"
#include "comm/thread_communicator.hpp"
#include "comm/world.hpp"
#include "device/device_memory.hpp"
#include "mesh_cases.hpp"

// Ranks as threads of this process.

namespace forge {
namespace {

class Threads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Threads, testing::Values(1, 2, 3, 5, 8));

TEST_P(Threads, AllOperations) {
  run_ranks(GetParam(), comm_cases::everything);
}

TEST(ThreadRanks, OneAlone) {
  const auto alone = self_communicator();
  comm_cases::everything(*alone);
}

// What agree_on says on each rank, of ranks whose second fact is their text; "" where they agree.
std::vector<std::string> answers(const std::vector<std::string>& texts) {
  std::vector<std::string> said(texts.size());
  run_ranks(static_cast<int>(texts.size()), [&](Communicator& ranks) {
    Watchdog watchdog({0, 0}, "test", [](const Watchdog::Missed&) {});
    const ThreadRank world(ranks, watchdog);
    const auto rank = static_cast<std::size_t>(ranks.rank());
    try {
      agree_on({{"the build", "1\n2\n", "start one"}, {"the deck", texts[rank], "read the same"}}, world);
    } catch (const BadInput& error) {
      said[rank] = error.what();
    }
  });
  return said;
}

TEST(ThreadRanks, NameTheOddOnes) {
  const std::string usual = "a: 1\nb: 2\n";
  for (const std::string& text : answers({usual, usual, usual})) EXPECT_EQ(text, "");
  for (const std::string& text : answers({usual, "a: 1\nb: 3\n", usual, usual}))
    EXPECT_EQ(
        text,
        "the deck of rank 1 differs from that of rank 0 and 2 more: \"b: 3\" there, \"b: 2\" here; read the same");
  for (const std::string& text : answers({"a: 1\n", usual, usual}))
    EXPECT_EQ(
        text,
        "the deck of rank 0 differs from that of rank 1 and 1 more: \"nothing\" there, \"b: 2\" here; read the same");
  for (const std::string& text : answers({usual, "", "x", "y", "z", "w", usual}))
    EXPECT_NE(text.find("the deck of ranks 1, 2, 3, 4 and 1 more differs from that of rank 0 and 1 more"),
              std::string::npos)
        << text;
}

// Ranks that take turns in one thread, in the same order every time.
TEST(Fibers, AllOperations) {
  for (const int ranks : {1, 3})
    run_fibers(ranks, [](Communicator& world) {
      comm_cases::all_operations(world, Stream::Kind::Inline);
      comm_cases::transfers(world, Stream::Kind::Inline);
      comm_cases::sums_are_repeatable(world);
      comm_cases::host_operations(world);
      comm_cases::splits(world);
      comm_cases::traffic(world);
      comm_cases::host_traffic(world);
    });
  run_fibers(6, mesh_cases::every_mesh);
}

TEST(Fibers, AFailureEndsTheWaitingOfAll) {
  int woken = 0;
  const auto job = [&](Communicator& world) {
    const auto group = world.split(world.rank() % 2, 0);
    if (world.rank() == 5) throw std::runtime_error("rank broke");
    try {
      world.barrier();
    } catch (const RankFailed&) {
      ++woken;
      throw;
    }
  };
  EXPECT_THROW(run_fibers(16, job), std::runtime_error);
  EXPECT_EQ(woken, 15);
}

// One rank's message is never sent: an error, not a test that hangs. Ranks may wait while they handle an exception.
TEST(Fibers, NamesAJobThatWaitsForever) {
  try {
    run_fibers(4, [](Communicator& world) {
      Stream stream;
      double x = 1;
      try {
        throw std::runtime_error("of rank " + std::to_string(world.rank()));
      } catch (const std::runtime_error& error) {
        world.barrier();
        EXPECT_EQ(error.what(), "of rank " + std::to_string(world.rank()));
        if (world.rank() == 3) world.receive(stream, &x, 1, DType::f64, 0);
      }
      world.barrier();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "every rank waits for another one");
  }
}

TEST(ThreadRanks, SumsRunInTheOrderOfRanks) {
  run_ranks(3, [](Communicator& ranks) {
    Stream stream;
    const double values[] = {1e16, 1, -1e16};  // from the left the 1 is lost, in another order it is not
    double x = values[ranks.rank()];
    ranks.all_reduce(stream, &x, 1, DType::f64);
    EXPECT_EQ(x, (1e16 + 1) - 1e16);
    bf16 y(ranks.rank() == 0 ? 256.0f : 0.75f);  // 257.5 is 258; rounded after each addition it would be 256
    ranks.all_reduce(stream, &y, 1, DType::bf16);
    EXPECT_EQ(static_cast<float>(y), 258.0f);
  });
}

TEST(ThreadRanks, EveryMesh) {
  for (const int ranks : {1, 2, 3, 4, 6, 8, 12}) run_ranks(ranks, mesh_cases::every_mesh);
}

TEST(ThreadRanks, TrafficOfAMesh) {
  run_ranks(5, mesh_cases::traffic);
}

TEST(ThreadRanks, GroupsOfAGridNeedAGrid) {
  run_ranks(2, [](Communicator& ranks) {
    EXPECT_THROW(ranks.sub(1), Error);
    EXPECT_THROW(ranks.cartesian(Grid({3})), Error);
  });
}

// What the verbs ask of where they run.
TEST(ThreadRanks, AreAWorldOnOneNode) {
  run_ranks(3, [](Communicator& ranks) {
    Watchdog watchdog({0, 0}, "test", [](const Watchdog::Missed&) {});
    const ThreadRank world(ranks, watchdog);
    EXPECT_EQ(&world.watchdog(), &watchdog);
    EXPECT_EQ(world.rank(), ranks.rank());
    EXPECT_EQ(world.local_rank(), ranks.rank());
    EXPECT_EQ(world.local_size(), 3);
    EXPECT_EQ(world.nodes(), 1);
    std::int64_t sum = 1;
    world.make_world()->sum_host({&sum, 1});
    EXPECT_EQ(sum, 3);
  });
}

TEST(ThreadRanks, ManyRanksInManyGroups) {
  std::atomic<int> done{0};
  run_ranks(64, [&](Communicator& world) {
    Stream stream;
    const auto row = world.split(world.rank() / 8, 0), column = world.split(world.rank() % 8, 0);
    double x = 1;
    row->all_reduce(stream, &x, 1, DType::f64);
    column->all_reduce(stream, &x, 1, DType::f64);
    EXPECT_EQ(x, 64);
    ++done;
  });
  EXPECT_EQ(done, 64);
}

// Runs ranks of which number `failing` throws when the others wait in `operation`; all must end.
template <class F>
void all_end(int failing, F operation) {
  std::atomic<int> woken{0};
  try {
    run_ranks(4, [&](Communicator& world) {
      const auto group = world.duplicate();
      if (world.rank() == failing) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the others wait
        throw std::runtime_error("rank broke");
      }
      try {
        operation(*group);
        ADD_FAILURE() << "an operation ended without its fourth rank";
      } catch (const RankFailed& error) {
        EXPECT_NE(std::string(error.what()).find("rank broke"), std::string::npos) << error.what();
        ++woken;
        throw;
      }
    });
    ADD_FAILURE() << "the failure is lost";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank broke") << "the cause, not its echo";
  }
  EXPECT_EQ(woken, 3);
}

TEST(ThreadRanks, AFailureEndsACollective) {
  for (int failing = 0; failing < 4; ++failing)
    all_end(failing, [](Communicator& c) {
      Stream stream;
      double x = 1;
      c.all_reduce(stream, &x, 1, DType::f64);
    });
}

TEST(ThreadRanks, AFailureEndsACollectiveInTheBackground) {
  all_end(2, [](Communicator& c) {
    Stream stream(1, Stream::Kind::Worker);
    const Buffer data(800);
    c.all_reduce(stream, data.data(), 100, DType::f64);
    c.all_reduce(stream, data.data(), 100, DType::f64);
    stream.synchronize();
  });
}

TEST(ThreadRanks, AFailureEndsTransfersAndAgreement) {
  all_end(3, [](Communicator& c) { c.barrier(); });
  all_end(3, [](Communicator& c) {
    Stream stream;
    double x = 1;
    c.receive(stream, &x, 1, DType::f64, 3);
  });
  all_end(3, [](Communicator& c) {
    Stream stream;
    double x = 1;
    c.send(stream, &x, 1, DType::f64, 3);
  });
  all_end(3, [](Communicator& c) { c.split(0, 0); });
}

TEST(ThreadRanks, DifferentCallsAreAnErrorThatNamesThem) {
  try {
    run_ranks(2, [](Communicator& c) {
      Stream stream;
      float x[4] = {};
      c.all_reduce(stream, x, c.rank() == 0 ? 4 : 3, DType::f32);
    });
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("all-reduce of 4 fp32"), std::string::npos) << text;
    EXPECT_NE(text.find("all-reduce of 3 fp32"), std::string::npos) << text;
  }
  EXPECT_THROW(run_ranks(2,
                         [](Communicator& c) {
                           Stream stream;
                           float x[4] = {};
                           if (c.rank() == 0)
                             c.send(stream, x, 4, DType::f32, 1);
                           else
                             c.receive(stream, x, 3, DType::f32, 0);
                         }),
               Error);
}

TEST(ThreadRanks, ASendWaitsForItsReceive) {
  run_ranks(2, [](Communicator& c) {
    Stream stream(1, Stream::Kind::Worker);
    double x = c.rank();
    if (c.rank() == 0) {
      c.send(stream, &x, 1, DType::f64, 1);
      Event sent;
      sent.record(stream);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_FALSE(sent.ready());
      c.barrier();
      sent.synchronize();
    } else {
      c.barrier();
      c.receive(stream, &x, 1, DType::f64, 0);
      stream.synchronize();
      EXPECT_EQ(x, 0);
    }
  });
}

TEST(ThreadRanks, TypedViewsCarryTheirCounts) {
  run_ranks(3, [](Communicator& c) {
    Stream stream;
    float mine[4] = {1, 2, 3, 4}, all[12] = {};
    const View<const float, 2> in(mine, {{2, 2}});
    const View<float, 1> out(all, {{12}});
    c.all_gather(stream, in, out);
    EXPECT_EQ(all[11], 4);
    EXPECT_THROW(c.all_gather(stream, in, View<float, 1>(all, {{11}})), Error);
    EXPECT_THROW(c.all_reduce(stream, View<float, 2>(all, {{2, 2}}, 6)), Error) << "rows with gaps";
    c.reduce_scatter(stream, View<const float, 1>(out), View<float, 2>(mine, {{2, 2}}));
    EXPECT_EQ(mine[0], 3);
  });
}

}  // namespace
}  // namespace forge
