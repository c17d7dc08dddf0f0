#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "../app/io_faults.hpp"
#include "../long_run.hpp"
#include "save_sample.hpp"

namespace forge::test {
namespace {

// The calls that a save makes of libc (libhdf5's among them), and an error that each may have.
struct Call {
  const char* name;
  const char* error;
  // So many of them stop a save, at least. The ranks' calls come in another order each time, so that the n-th isn't
  // always the same one: of 31 closes five matter, and four have been seen.
  std::int64_t least;
};
constexpr Call calls[] = {{"open", "28", 20}, {"write", "28", 40}, {"fsync", "5", 8}, {"close", "5", 3},
                          {"rename", "5", 4}, {"unlink", "5", 5},  {"mkdir", "28", 1}};

std::map<std::string, std::string> contents_of(const fs::path& directory) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::directory_iterator(directory)) contents[entry.path().filename()] = text_of(entry.path());
  return contents;
}

using Steps = std::set<std::int64_t>;
Steps whole_steps(const fs::path& directory) {
  Steps steps;
  for (const StepDirectory& step : committed_steps(directory)) {
    EXPECT_TRUE(verify_checkpoint(step.path, 1).empty()) << step.path;
    steps.insert(step.step);
  }
  return steps;
}

struct Case {
  Call call;
  bool asynchronous, replaces;  // a step of this name stands there already
};

class FailingSave : public testing::TestWithParam<Case> {};

// The n-th call fails, in whichever rank makes it. Either all ranks say so, or the new step is whole and the right
// older ones are left; what was committed before is whole in any case, nothing half-written has a step's name, the next
// start removes what is left, and the next save succeeds.
TEST_P(FailingSave, LosesNothingAndSaysSo) {
  const auto [call, asynchronous, replaces] = GetParam();
  const Scratch scratch;
  const fs::path good = scratch.path / "good", saved = scratch.path / "saved";
  for (const std::int64_t step : {1, 2}) write_sample(good, step, 2);
  if (replaces) write_sample(good, 3, 3);
  const auto before = contents_of(good / step_name(2));
  std::int64_t n = 0, said = 0, silent = 0;
  for (bool failed = true; failed; ++n) {
    fs::remove_all(saved);
    fs::copy(good, saved, fs::copy_options::recursive);
    set_io_fault((std::string(call.name) + ":" + std::to_string(n + 1) + ":" + call.error).c_str(), saved.c_str());
    const Outcome outcome = save_on_two_ranks(saved, 3, asynchronous);
    failed = io_fault_came_to_pass();
    set_io_fault(nullptr, "");
    SCOPED_TRACE(std::string(call.name) + " " + std::to_string(n + 1) + ": " + outcome.thrown[0]);
    EXPECT_EQ(outcome.thrown[0], outcome.thrown[1]);
    const Steps steps = whole_steps(saved);
    EXPECT_TRUE(steps.count(2));
    EXPECT_EQ(contents_of(saved / step_name(2)), before);
    if (outcome.thrown[0].empty()) {
      ++silent;
      EXPECT_EQ(steps, outcome.notes.empty() ? (Steps{2, 3}) : (Steps{1, 2, 3}));
      EXPECT_EQ(CheckpointFiles(saved / step_name(3)).manifest().shards.size(), 2u);
    } else {
      ++said;
      EXPECT_TRUE(steps.count(3) || !replaces);  // the one of before, or its successor
      EXPECT_EQ(outcome.thrown[0].rfind("checkpoint: ", 0), 0u);
    }
    tidy_directory(saved, [](const std::string&) { return true; });
    for (const auto& entry : fs::directory_iterator(saved))
      EXPECT_NE(entry.path().filename().string()[0], '.') << "left over: " << entry.path();
    const Outcome next = save_on_two_ranks(saved, 3, asynchronous);
    EXPECT_EQ(next.thrown, std::vector<std::string>(2));
    EXPECT_TRUE(reads_back(saved / step_name(3)));
    EXPECT_EQ(whole_steps(saved), (Steps{2, 3}));
    if (HasFailure()) break;
  }
  EXPECT_GE(said, call.least);
  std::printf("%s: %lld calls, of which %lld stop the save and %lld don't matter to it\n", call.name,
              static_cast<long long>(n - 1), static_cast<long long>(said), static_cast<long long>(silent - 1));
}

std::vector<Case> cases() {
  const bool all = long_run();
  std::vector<Case> cases;
  for (const Call& call : calls)
    for (const bool asynchronous : {false, true})
      for (const bool replaces : {false, true})
        if (all || (!asynchronous && (!replaces || std::strcmp(call.name, "rename") == 0)))
          cases.push_back({call, asynchronous, replaces});
  return cases;
}
std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.call.name) + (info.param.asynchronous ? "_behind" : "") +
         (info.param.replaces ? "_replacing" : "");
}
INSTANTIATE_TEST_SUITE_P(Calls, FailingSave, testing::ValuesIn(cases()), name_of_case);

// A short write is no error: the rest follows.
TEST(ShortWrites, AreWrittenToTheEnd) {
  const Scratch scratch;
  set_io_fault("write:1:0:more", scratch.path.c_str());
  const Outcome outcome = save_on_two_ranks(scratch.path, 3, false);
  EXPECT_TRUE(io_fault_came_to_pass());
  set_io_fault(nullptr, "");
  EXPECT_EQ(outcome.thrown, std::vector<std::string>(2));
  EXPECT_TRUE(verify_checkpoint(scratch.path / step_name(3), 1).empty());
  EXPECT_TRUE(reads_back(scratch.path / step_name(3)));
}

}  // namespace
}  // namespace forge::test
