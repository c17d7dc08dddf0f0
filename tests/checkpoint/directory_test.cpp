#include <gtest/gtest.h>

#include <fstream>

#include "sample.hpp"

namespace forge::test {
namespace {

std::vector<std::int64_t> steps_of(const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const StepDirectory& step : committed_steps(directory)) steps.push_back(step.step);
  return steps;
}

TEST(Directory, NewestFirst) {
  const Scratch scratch;
  for (const std::int64_t step : {3, 123456789, 20}) write_sample(scratch.path, step, 1);
  fs::create_directory(scratch.path / "step_7");
  fs::create_directory(scratch.path / "step_0000000x");
  std::ofstream(scratch.path / "step_00000008") << "no directory";
  EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{123456789, 20, 3}));
  EXPECT_EQ(step_name(20), "step_00000020");
  EXPECT_EQ(committed_steps(scratch.path)[1].path, (scratch.path / "step_00000020").string());
  EXPECT_TRUE(committed_steps((scratch.path / "none").string()).empty());
}

TEST(Directory, PrunesWhatIsOld) {
  const Scratch scratch;
  for (std::int64_t step = 1; step <= 8; ++step) write_sample(scratch.path, step, 1);
  prune_steps(scratch.path, 0, 0);
  EXPECT_EQ(steps_of(scratch.path).size(), 8u);
  prune_steps(scratch.path, 2, 3);
  EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{8, 7, 6, 3}));
  prune_steps(scratch.path, 1, 0);
  EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{8}));
  for (const auto& entry : fs::directory_iterator(scratch.path))
    EXPECT_TRUE(entry.path().filename() == "latest" || entry.path().filename() == "step_00000008") << entry.path();
}

TEST(Directory, ASavedStepReplacesOneOfItsName) {
  const Scratch scratch;
  write_sample(scratch.path, 5, 1);
  EXPECT_EQ(CheckpointFiles(write_sample(scratch.path, 5, 4)).manifest().shards.size(), 4u);
  EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{5}));
}

// Wherever a job was killed: what was committed is there, what wasn't is gone.
TEST(Directory, TidiesWhatAKilledJobLeft) {
  const Scratch scratch;
  const std::string step = write_sample(scratch.path, 5, 2);
  start_step(scratch.path, 6);
  std::ofstream(scratch.path / ".step_00000006.partial" / "shard_00000.h5") << "half";
  fs::copy(step, scratch.path / ".step_00000004.removed");
  fs::rename(step, scratch.path / ".step_00000005.replaced");  // its successor never came
  tidy_directory(scratch.path);
  EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{5}));
  EXPECT_TRUE(reads_back(step));
  fs::copy(step, scratch.path / ".step_00000005.replaced");  // its successor did come
  tidy_directory(scratch.path);
  EXPECT_TRUE(reads_back(step));
  for (const auto& entry : fs::directory_iterator(scratch.path))
    EXPECT_NE(entry.path().filename().string().front(), '.') << entry.path();
}

TEST(Directory, MovesStepsAside) {
  const Scratch scratch;
  for (const char* aside : {"old.1", "old.2"}) {
    write_sample(scratch.path, 5, 1);
    EXPECT_EQ(next_aside(scratch.path), aside);
    move_steps_aside(scratch.path, -1, aside);
    EXPECT_TRUE(steps_of(scratch.path).empty());
    EXPECT_TRUE(reads_back(scratch.path / aside / "step_00000005"));
  }
  for (const std::int64_t step : {5, 6, 7}) write_sample(scratch.path, step, 1);
  move_steps_aside(scratch.path, 6, next_aside(scratch.path));
  EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{6, 5}));
  EXPECT_EQ(steps_of(scratch.path / "old.3"), (std::vector<std::int64_t>{7}));
  move_steps_aside(scratch.path, -1, "old.3");  // what was cut short
  EXPECT_EQ(steps_of(scratch.path / "old.3"), (std::vector<std::int64_t>{7, 6, 5}));
}

}  // namespace
}  // namespace forge::test
