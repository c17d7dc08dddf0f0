#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "checkpoint/run_marker.hpp"
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

TEST(Directory, ASavedStepReplacesOneOfItsName) {
  const Scratch scratch;
  write_sample(scratch.path, 5, 1);
  EXPECT_EQ(CheckpointFiles(write_sample(scratch.path, 5, 4)).manifest().shards.size(), 4u);
  EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{5}));
}

// What has a step's name and is none keeps its contents; links that lead nowhere, or to themselves, are left out.
TEST(Directory, KeepsWhatIsNoCheckpoint) {
  const Scratch scratch;
  std::ofstream(scratch.path / "step_00000005") << "mine";
  fs::create_symlink("step_00000009", scratch.path / "step_00000009");
  fs::create_symlink("nowhere", scratch.path / "step_00000008");
  EXPECT_TRUE(steps_of(scratch.path).empty());
  EXPECT_EQ(notes_of_strange_steps(scratch.path).size(), 3u);
  for (const std::int64_t step : {5, 8, 9}) write_sample(scratch.path, step, 1);
  EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{9, 8, 5}));
  EXPECT_EQ(text_of(scratch.path / "step_00000005.1"), "mine");
  EXPECT_TRUE(fs::is_symlink(scratch.path / "step_00000009.1"));
  EXPECT_TRUE(notes_of_strange_steps(scratch.path).empty());
}

// A run's marker may be anybody's text.
TEST(Directory, BelievesNoMarkerThatForgeDoesNotWrite) {
  for (const std::string text : {"moving -1 ../x", "moving 3", "moving x old.1", "moving -2 old.1", "moving 3 old.1/..",
                                 "moving 3 old.", "model ../x", "model old.1/../x", "model /x", "hello", "job ", ""}) {
    const Scratch scratch;
    const std::string step = write_sample(scratch.path, 5, 1);
    std::ofstream(scratch.path / "run") << "job 7\n" << text << "\n";
    EXPECT_THROW(read_run_marker(scratch.path), BadInput) << text;
    EXPECT_TRUE(verify_checkpoint(step, 1).empty()) << text;
  }
  const Scratch scratch;
  write_sample(scratch.path, 5, 1);
  std::ofstream(scratch.path / "run") << "job 7\nmodel old.1/step_00000008\nmoving 3 old.2\n";
  EXPECT_EQ(read_run_marker(scratch.path).model, "old.1/step_00000008");
  EXPECT_TRUE(fs::exists(scratch.path / "old.2" / "step_00000005"));
}

constexpr const char* nonce = "0123456789abcdef";

bool every(const std::string&) {
  return true;
}
bool none(const std::string&) {
  return false;
}

std::set<std::string> hidden_names(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    if (const std::string name = entry.path().filename(); name.front() == '.') names.insert(name);
  return names;
}

// Wherever a job was killed: what was committed is there, what wasn't is gone. With the names of earlier versions, too.
TEST(Directory, TidiesWhatAKilledJobLeft) {
  for (const char* tag : {".0123456789abcdef", ""}) {
    const Scratch scratch;
    const std::string step = write_sample(scratch.path, 5, 2);
    const auto hidden = [&](const char* name) {
      return scratch.path / ("." + std::string(name, 13) + tag + (name + 13));
    };
    fs::create_directory(hidden("step_00000006.partial"));
    std::ofstream(hidden("step_00000006.partial") / "shard_00000.h5") << "half";
    fs::copy(step, hidden("step_00000004.removed"));
    fs::rename(step, hidden("step_00000005.replaced"));  // its successor never came
    std::ofstream(scratch.path / (std::string(".latest") + tag + ".tmp")) << "half";
    EXPECT_EQ(hidden_names(scratch.path).size(), 4u);
    EXPECT_TRUE(tidy_directory(scratch.path, every).empty());
    EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{5}));
    EXPECT_TRUE(reads_back(step));
    fs::copy(step, hidden("step_00000005.replaced"));  // its successor did come
    EXPECT_TRUE(tidy_directory(scratch.path, every).empty());
    EXPECT_TRUE(reads_back(step));
    EXPECT_TRUE(hidden_names(scratch.path).empty());
  }
}

// Names that forge doesn't give are left alone, and so is what may be a living job's.
TEST(Directory, LeavesWhatIsNotItsOwn) {
  const Scratch scratch;
  const std::set<std::string> others{".step_00000006.mine.partial",
                                     ".step_6.0123456789abcdef.partial",
                                     ".step_00000006.0123456789abcdef.partial.bak",
                                     ".notes.tmp",
                                     ".latest.mine.tmp",
                                     ".step_00000006.0123456789abcdeX.removed",
                                     ".step_00000006",
                                     "."};
  for (const std::string& name : others)
    if (name != ".") fs::create_directory(scratch.path / name);
  const std::string living = start_step(scratch.path, 6, nonce);
  const std::vector<std::string> kept = tidy_directory(scratch.path, none);
  EXPECT_EQ(kept, std::vector<std::string>{living});
  EXPECT_EQ(hidden_names(scratch.path).size(), others.size());  // "." is none
  EXPECT_TRUE(tidy_directory(scratch.path, every).empty());
  EXPECT_EQ(hidden_names(scratch.path).size(), others.size() - 1);
}

// A job removes what it has not finished itself, and nothing of another one's.
TEST(Directory, StartsAStepBesideAnotherJobs) {
  const Scratch scratch;
  const std::string other = draw_nonce();
  const std::string theirs = start_step(scratch.path, 6, other), failed = start_step(scratch.path, 5, nonce),
                    mine = start_step(scratch.path, 6, nonce);
  EXPECT_TRUE(fs::is_directory(theirs));
  EXPECT_TRUE(fs::is_directory(mine));
  EXPECT_FALSE(fs::exists(failed));
  std::ofstream(fs::path(theirs) / "shard_00000.h5") << "theirs";
  abandon_step(scratch.path, 6, nonce);
  EXPECT_FALSE(fs::exists(mine));
  EXPECT_EQ(text_of(fs::path(theirs) / "shard_00000.h5"), "theirs");
}

// A commit that fails between its two renames, where names can't be exchanged.
TEST(Directory, AFailedCommitGivesTheStepItsNameBack) {
  const Scratch scratch;
  const std::string step = write_sample(scratch.path, 5, 2);
  start_step(scratch.path, 5, nonce);
  fs::rename(step, scratch.path / (".step_00000005." + std::string(nonce) + ".replaced"));
  abandon_step(scratch.path, 5, nonce);
  EXPECT_TRUE(reads_back(step));
  EXPECT_TRUE(hidden_names(scratch.path).empty());
}

// Two writers never share a file: the second one is told.
TEST(Directory, AShardIsMadeOnce) {
  const Scratch scratch;
  std::ofstream(scratch.path / shard_name(0)) << "another job's";
  SamplePieces pieces;
  for (const SampleTensor& tensor : sample_tensors()) pieces.add(tensor, cut(tensor.shape, 1, 1)[0], true);
  EXPECT_THROW(write_shard(scratch.path, 0, pieces.tensors, copy_bytes), IoFailed);
  EXPECT_EQ(text_of(scratch.path / shard_name(0)), "another job's");
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
