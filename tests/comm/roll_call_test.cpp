#include "comm/roll_call.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <random>

namespace forge::test {
namespace {

TEST(RankSet, KeepsRanges) {
  RankSet set;
  for (const int rank : {7, 3, 5, 4, 0}) set.add(rank);
  set.add(20, 30);
  EXPECT_EQ(set.text(), "0, 3 to 5, 7, 20 to 29");
  EXPECT_EQ(set.code(), "0,3-5,7,20-29");
  EXPECT_EQ(RankSet::from_code(set.code()), set);
  EXPECT_EQ(RankSet::from_code(""), RankSet());
  EXPECT_EQ(set.count(), 15);
  EXPECT_EQ(set.others(32).text(), "1 to 2, 6, 8 to 19, 30 to 31");
  EXPECT_EQ(set.others(25).text(), "1 to 2, 6, 8 to 19");
  set.add(6);
  set.add(8, 20);
  EXPECT_EQ(set.text(), "0, 3 to 29");
  EXPECT_TRUE(set.contains(29));
  EXPECT_FALSE(set.contains(30) || set.contains(2));
}

// Every sequence of additions against a plain set of numbers.
TEST(RankSet, IsASet) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    RankSet set;
    std::vector<bool> plain(40, false);
    for (int i = 0; i < 8; ++i) {
      const int begin = static_cast<int>(random() % 40), end = begin + static_cast<int>(random() % 12);
      set.add(begin, std::min(end, 40));
      for (int r = begin; r < std::min(end, 40); ++r) plain[static_cast<std::size_t>(r)] = true;
    }
    for (int r = 0; r < 40; ++r) EXPECT_EQ(set.contains(r), plain[static_cast<std::size_t>(r)]);
    for (const auto& [begin, end] : set.ranges()) EXPECT_FALSE(set.contains(end)) << "neighbours are one range";
  }
}

// Ranks that take turns now and then, letters that travel, clocks of their own: a job of any size in one thread.
class Job {
 public:
  struct Rank {
    double misses_at = 10;  // the job's time when its deadline runs out
    double clock = 0;       // ahead of the job's
    bool silent = false;    // takes no turns
    std::string doing = "step 4, labels";
  };
  struct Report {
    int from;
    double at;
    RollCall::Outcome outcome;
  };
  explicit Job(int size, unsigned seed) : ranks(static_cast<std::size_t>(size)), random_(seed) {}

  std::vector<Rank> ranks;
  std::vector<Report> reports;
  std::vector<int> sent;  // letters, by rank
  double slowest_turn = 0.15, slowest_letter = 0.05;

  // Until the job's time is `end`, or for a moment behind the first report: a second one would come by then.
  void run(double end) {
    const auto n = ranks.size();
    sent.assign(n, 0);
    boxes_.clear();
    std::vector<std::unique_ptr<RollCall>> calls;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> turns;
    for (std::size_t r = 0; r < n; ++r) {
      boxes_.push_back(std::make_unique<Box>(*this, static_cast<int>(r)));
      calls.push_back(std::make_unique<RollCall>(static_cast<int>(r), static_cast<int>(n), *boxes_[r]));
      if (!ranks[r].silent) turns.push({drawn(slowest_turn), static_cast<int>(r)});
    }
    while (!turns.empty()) {
      const auto [at, rank] = turns.top();
      if (at > end || (!reports.empty() && at > reports.front().at + 0.3)) return;
      turns.pop();
      now_ = at;
      const Rank& r = ranks[static_cast<std::size_t>(rank)];
      const auto outcome = calls[static_cast<std::size_t>(rank)]->turn(at + r.clock, {r.doing, r.misses_at - at});
      if (outcome)
        reports.push_back({rank, at, *outcome});  // and ends the job, if no other one was faster
      else
        turns.push({at + 0.02 + drawn(slowest_turn), rank});
    }
  }

 private:
  using Event = std::pair<double, int>;
  double drawn(double most) { return std::uniform_real_distribution<double>(0, most)(random_); }

  class Box final : public Mail {
   public:
    Box(Job& job, int rank) : job_(job), rank_(rank) {}
    void send(int to, const std::string& text) override {
      ++job_.sent[static_cast<std::size_t>(rank_)];
      Box& box = *job_.boxes_[static_cast<std::size_t>(to)];
      double& latest = box.latest_[rank_];  // letters of two ranks keep their order
      latest = std::max(latest, job_.now_ + job_.drawn(job_.slowest_letter));
      box.letters_.push({latest, static_cast<int>(box.texts_.size())});
      box.texts_.push_back({rank_, text});
    }
    std::optional<Letter> receive() override {
      if (letters_.empty() || letters_.top().first > job_.now_) return {};
      const int number = letters_.top().second;
      letters_.pop();
      return texts_[static_cast<std::size_t>(number)];
    }

   private:
    Job& job_;
    int rank_;
    std::map<int, double> latest_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> letters_;
    std::vector<Letter> texts_;
  };

  std::mt19937 random_;
  double now_ = 0;
  std::vector<std::unique_ptr<Box>> boxes_;
};

RankSet silent_of(const Job& job) {
  RankSet silent;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    if (job.ranks[r].silent) silent.add(static_cast<int>(r));
  return silent;
}

// Exactly one report, in time, that names exactly the silent ranks, and what every other one does.
void expect_exact(const Job& job, double deadline, const std::string& what) {
  ASSERT_EQ(job.reports.size(), 1u) << what;
  const Job::Report& report = job.reports.front();
  EXPECT_EQ(report.outcome.silent.text(), silent_of(job).text()) << what;
  EXPECT_LT(report.at, deadline + 4.5) << what << ": the job has half a second more to end";
  RankSet answered;
  for (const auto& [doing, ranks] : report.outcome.answers) {
    answered.add(ranks);
    for (const auto& [begin, end] : ranks.ranges())
      for (int r = begin; r < end; ++r) EXPECT_EQ(job.ranks[static_cast<std::size_t>(r)].doing, doing) << what;
  }
  EXPECT_EQ(answered, report.outcome.silent.others(static_cast<int>(job.ranks.size()))) << what;
}

// Any ranks, alone or a node's together, the first ones too; deadlines that run out within 3 s of each other, and
// clocks that have nothing in common.
TEST(RollCall, NamesExactlyTheSilentRanks) {
  std::mt19937 random(12);
  for (const int size : {1, 2, 3, 4, 7, 8, 33, 200, 1024, 4096})
    for (int round = 0; round < (size > 1024 ? 2 : size > 100 ? 6 : 30); ++round) {
      Job job(size, random());
      const int node = 1 + static_cast<int>(random() % 16);
      const auto lost = static_cast<int>(random() % static_cast<unsigned>(size)) / node * node;
      for (int r = 0; r < size; ++r) {
        Job::Rank& rank = job.ranks[static_cast<std::size_t>(r)];
        rank.misses_at = 10 + (round % 2) * 3e-3 * static_cast<double>(random() % 1000);
        rank.clock = 1e5 * static_cast<double>(random() % 100);
        rank.silent = size > 1 && (round % 3 == 0   ? r == lost
                                   : round % 3 == 1 ? r / node == (round % 2 ? lost / node : 0)
                                                    : random() % 10 == 0);
        if (random() % 3 == 0) rank.doing = "step 4, gradients";
      }
      if (silent_of(job).count() == size) job.ranks.back().silent = false;
      job.run(40);
      double last = 0;
      for (const Job::Rank& rank : job.ranks)
        if (!rank.silent) last = std::max(last, rank.misses_at);
      expect_exact(job, last, std::to_string(size) + " ranks, round " + std::to_string(round));
    }
}

// A tree: no rank writes to many, also where a node's ranks must be passed over.
TEST(RollCall, CostsEachRankFewLetters) {
  for (const bool lost : {false, true}) {
    Job job(1024, 5);
    for (int r = 0; r < 1024; ++r) {
      job.ranks[static_cast<std::size_t>(r)].silent = lost && r / 8 == 16;
      if (r % 2) job.ranks[static_cast<std::size_t>(r)].misses_at = 12;
    }
    job.run(40);
    expect_exact(job, 12, "1024 ranks");
    int most = 0;
    for (const int n : job.sent) most = std::max(most, n);
    const int log = std::bit_width(1024u) - 1;
    EXPECT_LE(most, 8 * log) << "letters of one rank, over " << (lost ? 2 : 3) << " calls";
  }
}

// A rank that still has time is waited for, however long the others have had nothing to do: it writes its part of a
// checkpoint. Silence of another one ends that.
TEST(RollCall, WaitsForWhoeverGoesOn) {
  for (const bool stops : {false, true}) {
    Job job(40, 3);
    job.ranks[17].doing = "step 4, checkpoint";
    job.ranks[17].misses_at = 35;
    job.ranks[30].silent = stops;
    job.run(60);
    expect_exact(job, stops ? 10 : 35, stops ? "one stops" : "one writes");
    EXPECT_GT(job.reports.front().at, stops ? 10 : 35);
  }
}

// The rank that calls is lost itself: another one notices.
TEST(RollCall, GoesOnWithoutItsCaller) {
  for (const int caller : {0, 4, 3}) {
    Job job(8, 9);
    for (int r = 0; r < 8; ++r) job.ranks[static_cast<std::size_t>(r)].misses_at = r == caller ? 1 : 10;
    job.ranks[6].silent = true;
    job.run(20);
    ASSERT_EQ(job.reports.size(), 1u);
    EXPECT_EQ(job.reports.front().from, caller);
    Job rest(8, 9);
    rest.ranks = job.ranks;
    rest.ranks[static_cast<std::size_t>(caller)].silent = true;
    rest.run(40);
    expect_exact(rest, 10, "without rank " + std::to_string(caller));
  }
}

// Machines under load: turns a second apart. No false name.
TEST(RollCall, TakesTimeOverSlowRanks) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Job job(8, seed);
    job.slowest_turn = 0.6;
    job.ranks[seed % 8].silent = true;
    job.run(40);
    ASSERT_GE(job.reports.size(), 1u);
    EXPECT_EQ(job.reports.front().outcome.silent.text(), std::to_string(seed % 8));
  }
}

}  // namespace
}  // namespace forge::test
