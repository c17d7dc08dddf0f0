#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <tuple>

#include "save_sample.hpp"

namespace forge::test {
namespace {

struct FaultVariable {
  explicit FaultVariable(const std::string& text) { ::setenv("FORGE_FAULT", text.c_str(), 1); }
  ~FaultVariable() { ::unsetenv("FORGE_FAULT"); }
  FaultVariable(const FaultVariable&) = delete;
  FaultVariable& operator=(const FaultVariable&) = delete;
};

std::map<std::string, Hash> hashes_of(const fs::path& directory) {
  std::map<std::string, Hash> hashes;
  for (const auto& entry : fs::directory_iterator(directory))
    hashes[entry.path().filename()] = hash_of_file(entry.path());
  return hashes;
}

class FailingCalls : public testing::TestWithParam<std::tuple<int, bool>> {};

// Each call of a save fails once. All ranks hear of it and of who failed, what was committed before stays as it was,
// and nothing that is half written has a step's name; the next start removes what is left, and the next save succeeds.
TEST_P(FailingCalls, LeaveTheEarlierCheckpointsWhole) {
  const auto [rank, asynchronous] = GetParam();
  const Scratch scratch;
  const fs::path good = scratch.path / "good", saved = scratch.path / "saved";
  write_sample(good, 1, 2);
  write_sample(good, 2, 2);
  const auto before = hashes_of(good / step_name(2));
  std::int64_t failed = 0, committed = 0, unread = 0;
  for (std::int64_t n = 1;; ++n) {
    fs::remove_all(saved);
    fs::copy(good, saved, fs::copy_options::recursive);
    std::vector<std::string> thrown;
    {
      const FaultVariable fault("fail:" + std::to_string(rank) + ":3:" + std::to_string(n));
      thrown = save_on_two_ranks(saved, 3, asynchronous).thrown;
    }
    EXPECT_EQ(thrown[0], thrown[1]) << n;
    const auto steps = committed_steps(saved);
    ASSERT_FALSE(steps.empty()) << n;
    for (const StepDirectory& step : steps) EXPECT_TRUE(verify_checkpoint(step.path, 1).empty()) << n << step.path;
    EXPECT_EQ(hashes_of(saved / step_name(2)), before) << n;
    if (thrown[0].empty()) {
      EXPECT_EQ(steps.front().step, 3);
      if (steps.size() == 2) break;  // there are fewer calls
      ++unread;                      // an older step that can't be read doesn't count, so that one more stays
      EXPECT_EQ(steps.size(), 3u);
      continue;
    }
    ++failed;
    committed += steps.front().step == 3;
    const std::string who = "fails on purpose (FORGE_FAULT) (rank " + std::to_string(rank) + ")";
    EXPECT_NE(thrown[0].find(who), std::string::npos) << n << ": " << thrown[0];
    tidy_directory(saved, [](const std::string&) { return true; });
    for (const auto& entry : fs::directory_iterator(saved))
      EXPECT_NE(entry.path().filename().string()[0], '.') << n << " leaves " << entry.path();
    EXPECT_EQ(save_on_two_ranks(saved, 3, asynchronous).thrown, std::vector<std::string>(2)) << n;
    EXPECT_TRUE(reads_back(saved / step_name(3))) << n;
    EXPECT_EQ(committed_steps(saved).size(), 2u) << n;
  }
  // Each of the seven tensors takes four calls at least; the first rank also makes the directory and the manifest.
  EXPECT_GT(failed, rank == 0 ? 28 + 11 * 4 : 28);
  // Behind the rename `latest`, the reading of what was written and the oldest step's removal can fail.
  EXPECT_GT(committed, rank == 0 ? 4 : 1);
  EXPECT_GT(unread, 1);
  std::printf("rank %d: %lld calls failed, %lld of them behind the commit; %lld more on an older step\n", rank,
              static_cast<long long>(failed), static_cast<long long>(committed), static_cast<long long>(unread));
}

INSTANTIATE_TEST_SUITE_P(Saves, FailingCalls, testing::Combine(testing::Values(0, 1), testing::Bool()));

// A bit that flips behind the hashes: the save succeeds, and both verification and reading find it.
TEST(FlippedBit, IsFoundByReaders) {
  for (const int rank : {0, 1}) {
    const Scratch scratch;
    {
      const FaultVariable fault("flip:" + std::to_string(rank) + ":3");
      EXPECT_EQ(save_on_two_ranks(scratch.path, 3, false).thrown, std::vector<std::string>(2));
    }
    const std::string path = scratch.path / step_name(3);
    const auto findings = verify_checkpoint(path, 1);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_NE(findings[0].find(shard_name(rank)), std::string::npos) << findings[0];
    EXPECT_THROW(reads_back(path), BadCheckpoint);
  }
}

}  // namespace
}  // namespace forge::test
