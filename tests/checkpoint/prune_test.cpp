#include <gtest/gtest.h>
#include <sys/vfs.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "checkpoint/disk_reader.hpp"
#include "checkpoint/save.hpp"
#include "comm/thread_communicator.hpp"
#include "sample.hpp"

namespace forge::test {
namespace {

std::vector<std::int64_t> steps_of(const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const StepDirectory& step : committed_steps(directory)) steps.push_back(step.step);
  return steps;
}

// Another byte somewhere in a file.
void damage(const fs::path& file, std::uint64_t at = 3000) {
  std::string text = text_of(file);
  text.at(at % text.size()) ^= 1;
  put(file, text);
}

// Saves steps one after the other, by all ranks; the first one calls `before` each.
struct SavingRun {
  fs::path directory;
  int ranks = 2;
  std::int64_t keep_last = 1, keep_every = 0;
  bool asynchronous = false, leaves = false;
  std::vector<std::string> errors = {}, notes = {};  // of the first rank

  template <class F>
  void save(const std::vector<std::int64_t>& steps, F before) {
    run_ranks(ranks, [&](Communicator& world) {
      SamplePieces pieces;
      for (const SampleTensor& tensor : sample_tensors()) {
        const auto parts = cut(tensor.shape, ranks, mix(7, hash_of(tensor.name)));
        pieces.add(tensor, parts[static_cast<std::size_t>(world.rank())], true);
      }
      Stream stream(1);
      const DevicePieces on_device(pieces, stream);
      CheckpointSaver saver(world, {directory, keep_last, keep_every, {2048}}, asynchronous);
      for (const std::int64_t step : steps) {
        std::string error;
        try {
          if (world.rank() == 0) before(step);
          if (leaves) saver.leave();
          saver.save(sample_facts(step), on_device.tensors, stream);
          saver.finish();
        } catch (const IoFailed& failed) {
          error = failed.what();
        }
        if (world.rank() != 0) continue;
        errors.push_back(error);
        for (const std::string& note : saver.take_notes()) notes.push_back(note);
      }
    });
  }
  void save(const std::vector<std::int64_t>& steps) {
    save(steps, [](std::int64_t) {});
  }
};

// ext4, XFS or Btrfs.
bool on_a_device(const fs::path& path) {
  struct statfs status;
  if (::statfs(path.c_str(), &status) != 0) return false;
  const auto type = static_cast<std::uint32_t>(status.f_type);
  return type == 0xef53 || type == 0x58465342 || type == 0x9123683e;
}

// Bytes that this process has had read from devices, −1: the kernel doesn't say.
std::int64_t bytes_from_devices() {
  std::ifstream in("/proc/self/io");
  for (std::string name; in >> name;)
    if (name == "read_bytes:") {
      std::int64_t bytes = -1;
      return in >> bytes ? bytes : -1;
    }
  return -1;
}

// A file that was just written is in the page cache; what is read back is not.
TEST(DiskReader, ReadsPastThePageCache) {
  const fs::path path = fs::temp_directory_path() / ("forge_disk_" + std::to_string(getpid()));
  const std::string text = std::string(std::size_t{5} << 20, 'x') + "end";
  put(path, text);
  sync_file(path);
  const std::int64_t before = bytes_from_devices();
  const Hash cached = hash_of_file(path);
  const std::int64_t between = bytes_from_devices();
  const Hash read = hash_on_disk(path);
  const std::int64_t after = bytes_from_devices();
  fs::remove(path);
  EXPECT_EQ(read, cached);
  EXPECT_EQ(read, sha256(std::as_bytes(std::span(text))));
  if (before < 0 || !on_a_device(fs::temp_directory_path()))
    GTEST_SKIP() << fs::temp_directory_path() << " is on no device whose reads are counted";
  EXPECT_LT(between - before, std::int64_t{1} << 20);
  EXPECT_GE(after - between, std::int64_t{5} << 20);
}

TEST(Prune, KeepsTheNewestAndThoseOfAnInterval) {
  for (const bool asynchronous : {false, true}) {
    const Scratch scratch;
    SavingRun run{scratch.path, 2, 0, 0, asynchronous};
    run.save({1, 2, 3, 4});
    EXPECT_EQ(steps_of(scratch.path).size(), 4u);
    run.keep_last = 2;
    run.keep_every = 3;
    run.save({5, 6, 7, 8});
    EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{8, 7, 6, 3}));
    run.keep_last = 1;
    run.keep_every = 0;
    run.save({9});
    EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{9}));
    for (const auto& entry : fs::directory_iterator(scratch.path))
      EXPECT_TRUE(entry.path().filename() == "latest" || entry.path().filename() == "step_00000009") << entry.path();
    EXPECT_EQ(run.errors, std::vector<std::string>(9));
    EXPECT_TRUE(run.notes.empty());
  }
}

// A shard that changes behind its hashes: the older step stays, and the save says so. The next one is whole again.
TEST(Prune, RemovesNothingWhenTheNewStepIsDamaged) {
  for (const bool asynchronous : {false, true})
    for (const int rank : {0, 1}) {
      const Scratch scratch;
      SavingRun run{scratch.path, 2, 1, 0, asynchronous};
      run.save({1});
      ::setenv("FORGE_FAULT", ("flip:" + std::to_string(rank) + ":2").c_str(), 1);
      run.save({2});
      ::unsetenv("FORGE_FAULT");
      ASSERT_EQ(run.errors.size(), 2u);
      EXPECT_NE(run.errors[1].find("step_00000002 was read back from the disk and differs from the written one"),
                std::string::npos)
          << run.errors[1];
      EXPECT_NE(run.errors[1].find(shard_name(rank)), std::string::npos) << run.errors[1];
      EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{2, 1}));
      run.save({3});
      EXPECT_EQ(run.errors.back(), "");
      EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{3}));
    }
}

struct Spoil {
  const char* file;
  bool truncated;
  void operator()(const fs::path& step) const {
    const fs::path file_path = step / file;
    if (truncated)
      fs::resize_file(file_path, fs::file_size(file_path) - 1);
    else
      damage(file_path);
  }
};
constexpr Spoil spoils[] = {{"shard_00000.h5", false},
                            {"shard_00002.h5", false},
                            {"shard_00001.h5", true},
                            {"manifest.h5", false},
                            {"manifest.sha256", false}};

// A damaged step that an earlier run has left doesn't take the place of a whole one.
TEST(Prune, DamagedStepsOfBeforeDontCount) {
  for (const Spoil& spoil : spoils) {
    SCOPED_TRACE(spoil.file);
    const Scratch scratch;
    SavingRun run{scratch.path, 3, 2};
    run.save({1, 2});
    spoil(scratch.path / step_name(2));
    run.ranks = 2;  // fewer than wrote it
    run.save({3});
    EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{3, 2, 1}));
    ASSERT_EQ(run.notes.size(), 1u);
    EXPECT_NE(run.notes[0].find("step_00000002 is damaged and doesn't count"), std::string::npos) << run.notes[0];
    run.save({4, 5});
    EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{5, 4}));
    EXPECT_EQ(run.errors, std::vector<std::string>(5));
  }
}

// Nor one that the run itself has written, and somebody has changed since. It is looked at, and noted, once.
TEST(Prune, StepsThatChangeLaterDontCount) {
  for (const Spoil& spoil : spoils) {
    SCOPED_TRACE(spoil.file);
    const Scratch scratch;
    SavingRun run{scratch.path, 3, 3};
    std::vector<std::vector<std::int64_t>> seen;
    run.save({1, 2, 3, 4, 5, 6, 7}, [&](std::int64_t step) {
      seen.push_back(steps_of(scratch.path));
      if (step != 5) return;
      std::this_thread::sleep_for(
          std::chrono::milliseconds(20));  // the clock of a file's times goes by ticks, of 1 to 10 ms
      spoil(scratch.path / step_name(4));
    });
    using Steps = std::vector<std::int64_t>;
    EXPECT_EQ(seen[4], (Steps{4, 3, 2}));
    EXPECT_EQ(seen[5], (Steps{5, 4, 3, 2}));
    EXPECT_EQ(seen[6], (Steps{6, 5, 4, 3}));
    EXPECT_EQ(steps_of(scratch.path), (Steps{7, 6, 5}));
    EXPECT_EQ(run.notes.size(), 1u);
    EXPECT_EQ(run.errors, std::vector<std::string>(7));
  }
}

// What a save takes that somebody waits for: the rests behind the steps are no part of it.
TEST(WritingPace, RestsAreNoWork) {
  const auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
  using Clock = std::chrono::steady_clock;
  double rested = 0, counted = 0;
  for (int attempt = 0; attempt < 20 && rested < 0.2; ++attempt) {
    WritingPace pace;
    std::this_thread::sleep_for(
        std::chrono::milliseconds(400));  // a rest ends before three quarters of this have passed
    pace.start(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // its work
    const double before = pace.seconds_of_work();
    EXPECT_GE(before, 0.02);
    const auto start = Clock::now();
    pace.rest();
    rested = seconds(start, Clock::now());
    counted = pace.seconds_of_work() - before;
  }
  EXPECT_GE(rested, 0.2);
  EXPECT_LT(counted, rested / 2);
  WritingPace hurried;
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  hurried.start(true);
  hurried.hurry();
  const auto start = Clock::now();
  while (hurried.seconds_of_work() < 0.05) hurried.rest();
  EXPECT_LT(seconds(start, Clock::now()), 10);
}

// A job that is about to end saves, and reads nothing back: what is older goes when there is time.
TEST(Prune, NotWhenTheJobLeaves) {
  for (const bool asynchronous : {false, true}) {
    const Scratch scratch;
    SavingRun run{scratch.path, 2, 1, 0, asynchronous};
    run.save({1, 2});
    run.leaves = true;
    run.save({3});
    EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{3, 2}));
    run.leaves = false;
    run.save({4});
    EXPECT_EQ(steps_of(scratch.path), (std::vector<std::int64_t>{4}));
    EXPECT_EQ(run.errors, std::vector<std::string>(4));
  }
}

}  // namespace
}  // namespace forge::test
