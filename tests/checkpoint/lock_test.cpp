#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <set>

#include "../app/io_faults.hpp"
#include "config/directory_lock.hpp"
#include "core/error.hpp"
#include "sample.hpp"

namespace forge::test {
namespace {

using Clock = std::chrono::steady_clock;

// What flock does: it works, on a disk of this node or on a server; it is missing; it is given to jobs of every node.
enum class Flock { works, on_server, missing, of_one_node };

struct LockRig {
  Scratch scratch;
  std::string path = scratch.path / "made";
  // Short ones, with room for a loaded machine between a beat and the silence that counts.
  LockTimes times{0.5, 30, 0.1, 4, 0.2};

  explicit LockRig(Flock flock = Flock::works) {
    if (flock == Flock::missing) set_io_fault("flock:1:38:more", path.c_str());
    if (flock == Flock::on_server) set_io_fault("flock:999999:0:more", path.c_str());
    if (flock == Flock::of_one_node) set_io_fault("flock:1:0:more", path.c_str());
  }
  ~LockRig() { set_io_fault(nullptr, ""); }
  LockRig(const LockRig&) = delete;
  LockRig& operator=(const LockRig&) = delete;

  LockedDirectory directory() const { return {"checkpoint.directory", path, ".lock"}; }
  std::string file() const { return path + "/.lock"; }
  // The text of the refusal, "" where the lock is given.
  std::string refusal() const {
    try {
      const DirectoryLock lock(directory(), times);
      return "";
    } catch (const BadInput& error) {
      return error.what();
    }
  }
};

// Another process that runs `f` and then waits to be killed.
class Other {
 public:
  explicit Other(const std::function<void()>& f) {
    int ready[2];
    if (pipe(ready) != 0) throw Error("pipe");
    child_ = fork();
    if (child_ == 0) {
      f();
      if (write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    ::close(ready[1]);
    char byte;
    started_ = read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
  }
  ~Other() { kill(); }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  bool started() const { return started_; }
  pid_t pid() const { return child_; }
  void kill() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
  bool started_ = false;
};

// Takes the lock for as long as the process lives.
std::function<void()> hold(const LockRig& rig) {
  return [&rig] { new DirectoryLock(rig.directory(), rig.times); };
}

double seconds_of(const std::function<void()>& f) {
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(Nonces, AreDrawnAnew) {
  std::set<std::string> drawn;
  for (int i = 0; i < 1000; ++i) drawn.insert(draw_nonce());
  EXPECT_EQ(drawn.size(), 1000u);
  for (const std::string& nonce : drawn) EXPECT_TRUE(is_nonce(nonce)) << nonce;
  for (const char* other : {"", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF", "0123456789abcde."})
    EXPECT_FALSE(is_nonce(other)) << other;
}

class Locks : public testing::TestWithParam<Flock> {};

// Another process that lives has it: the refusal names node, process and start, and nothing changes. When it is killed,
// its file is no obstacle. A lock that ends by itself leaves nothing.
TEST_P(Locks, HaveOneHolder) {
  const LockRig rig(GetParam());
  Other other(hold(rig));
  ASSERT_TRUE(other.started());
  char node[256];
  gethostname(node, sizeof node);
  const std::string refused = rig.refusal();
  EXPECT_NE(refused.find("checkpoint.directory " + rig.path + " is in use by another forge job (" + node +
                         ", process " + std::to_string(other.pid()) + ", since 20"),
            std::string::npos)
      << refused;
  EXPECT_NE(refused.find(" UTC"), std::string::npos) << refused;
  EXPECT_NE(refused.find(rig.file()), std::string::npos) << refused;
  EXPECT_EQ(read_lock_text(rig.file()).who.find(std::string(node) + ", process " + std::to_string(other.pid())), 0u);
  other.kill();
  ASSERT_TRUE(fs::exists(rig.file()));
  EXPECT_EQ(rig.refusal(), "");
  EXPECT_FALSE(fs::exists(rig.file()));
  EXPECT_TRUE(fs::exists(rig.path));  // it was there
  fs::remove(rig.path);
  EXPECT_EQ(rig.refusal(), "");
  EXPECT_FALSE(fs::exists(rig.path));
}

TEST_P(Locks, AreGivenWhenTheHolderEnds) {
  LockRig rig(GetParam());
  rig.times.wait = 60;
  auto first = std::make_unique<DirectoryLock>(rig.directory(), rig.times);
  const std::string nonce = first->nonce();
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    first.reset();
  });
  const DirectoryLock second(rig.directory(), rig.times);
  ends.join();
  EXPECT_NE(second.nonce(), nonce);
  EXPECT_EQ(read_lock_text(rig.file()).nonce, second.nonce());
  second.check();
}

// Of many that start at once one has it at any time, and each has it once.
TEST_P(Locks, OneAtATimeOfMany) {
  constexpr int starts = 4;
  LockRig rig(GetParam());
  rig.times.wait = 120;
  rig.times.settle = 1;
  std::atomic<int> holders{0}, together{0}, served{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < starts; ++i)
      threads.emplace_back([&] {
        const DirectoryLock lock(rig.directory(), rig.times);
        together += ++holders > 1;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        EXPECT_NO_THROW(lock.check());
        --holders;
        ++served;
      });
  }
  EXPECT_EQ(served, starts);
  EXPECT_EQ(together, 0);
}

// Whoever was taken for dead, because it was stopped, say, is told before it writes again.
TEST_P(Locks, ALostLockIsNoticed) {
  const LockRig rig(GetParam());
  {
    const DirectoryLock lock(rig.directory(), rig.times);
    lock.check();
    put(rig.file(), lock_text("n7, process 1, since then", draw_nonce(), 3));
    EXPECT_THROW(lock.check(), IoFailed);
    // It doesn't take it back, nor remove it.
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    EXPECT_EQ(read_lock_text(rig.file()).who, "n7, process 1, since then");
  }
  EXPECT_EQ(read_lock_text(rig.file()).who, "n7, process 1, since then");
}

// A start opens the file while its holder removes it, and locks a file that has no name any more.
TEST(Lock, OfAFileThatIsGoneIsNone) {
  const LockRig rig;
  fs::create_directory(rig.path);
  const pid_t child = fork();
  if (child == 0) {
    set_io_fault("flock:1:stop", rig.path.c_str());  // between open and flock
    _exit(rig.refusal().empty() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_TRUE(fs::remove(rig.file()));
  const DirectoryLock lock(rig.directory(), rig.times);
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "both have the lock";
}

// Nor is a directory there that an ending start takes away between two calls of this one.
TEST(Lock, InADirectoryThatIsGone) {
  const LockRig rig;
  fs::create_directory(rig.path);
  const pid_t child = fork();
  if (child == 0) {
    set_io_fault("mkdir:1:stop", rig.path.c_str());
    const DirectoryLock lock({"output.directory", rig.path + "/run", ".lock"}, rig.times);
    _exit(fs::exists(rig.path + "/run/.lock") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_TRUE(fs::remove(rig.path));
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

std::string name_of(const testing::TestParamInfo<Flock>& info) {
  return std::array{"works", "on_server", "missing"}[static_cast<std::size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Flock, Locks, testing::Values(Flock::works, Flock::on_server, Flock::missing), name_of);

TEST(Lock, SaysWhereItIsNotCertain) {
  EXPECT_EQ(DirectoryLock(LockRig().directory()).warning(), "");
  for (const Flock flock : {Flock::missing, Flock::of_one_node}) {
    const LockRig rig(flock);
    const DirectoryLock lock(rig.directory(), rig.times);
    EXPECT_FALSE(lock.certain());
    EXPECT_NE(lock.warning().find("only the text of " + rig.file()), std::string::npos) << lock.warning();
    EXPECT_NE(lock.warning().find(flock == Flock::missing ? "has no locks" : "for one node only"), std::string::npos);
  }
}

// A file without a name that can be read, of an earlier version or somebody else's, doesn't lock.
TEST(Lock, AFileAloneIsNoObstacle) {
  for (const std::string& text : {std::string(), std::string("hello\n"), std::string(5000, '\xff'),
                                  lock_text("n7, process 1, since then", draw_nonce(), 3)}) {
    const LockRig rig;
    fs::create_directory(rig.path);
    put(rig.file(), text);
    EXPECT_EQ(rig.refusal(), "");
  }
}

// Where flock is missing, or may be of one node only, the text of another node's job counts for as long as it changes.
TEST(Lock, AnotherNodesTextCountsWhileItChanges) {
  for (const Flock flock : {Flock::missing, Flock::of_one_node}) {
    const LockRig rig(flock);
    fs::create_directory(rig.path);
    // Another node's: the text of this one is its own kernel's.
    const auto text = [nonce = draw_nonce()](int beat) {
      std::string all = lock_text("n7, process 1, since then, Slurm job 12", nonce, static_cast<std::uint64_t>(beat));
      const std::size_t boot = all.find(nonce) + nonce.size() + 1;
      all[boot] = all[boot] == '0' ? '1' : '0';
      return all;
    };
    put(rig.file(), text(0));
    {
      std::jthread beats([&](const std::stop_token& stop) {
        for (int beat = 1; !stop.stop_requested(); ++beat) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          put(rig.file() + ".new", text(beat));
          fs::rename(rig.file() + ".new", rig.file());
        }
      });
      const std::string refused = rig.refusal();
      EXPECT_NE(refused.find("(n7, process 1, since then, Slurm job 12)"), std::string::npos) << refused;
    }
    EXPECT_GE(seconds_of([&] { EXPECT_EQ(rig.refusal(), ""); }), rig.times.silence);
  }
}

// An earlier start of this Slurm job is waited for longer: the server keeps a lost node's locks.
TEST(Lock, WaitsLongerForItsOwnEarlierStart) {
  ::setenv("SLURM_JOB_ID", "77", 1);
  for (const bool earlier : {true, false}) {
    LockRig rig;
    rig.times.same_job = 3;
    Other other(hold(rig));
    ASSERT_TRUE(other.started());
    if (earlier) ::setenv("SLURM_RESTART_COUNT", "1", 1);
    const double seconds = seconds_of([&] { EXPECT_NE(rig.refusal(), ""); });
    EXPECT_EQ(seconds >= 3, earlier) << seconds;
    ::unsetenv("SLURM_RESTART_COUNT");
  }
  ::unsetenv("SLURM_JOB_ID");
}

// What a job has not finished may be a living one's where the lock isn't certain; not after an hour.
TEST(Lock, KnowsLeftOvers) {
  for (const Flock flock : {Flock::works, Flock::missing}) {
    const LockRig rig(flock);
    const DirectoryLock lock(rig.directory(), rig.times);
    const fs::path partial = fs::path(rig.path) / ".step_00000001.0123456789abcdef.partial";
    fs::create_directory(partial);
    put(partial / "shard_00000.h5", "half");
    EXPECT_EQ(lock.is_left_over(partial), flock == Flock::works);
    const auto now = fs::last_write_time(rig.file());
    fs::last_write_time(partial, now - std::chrono::minutes(61));
    EXPECT_EQ(lock.is_left_over(partial), flock == Flock::works);  // a shard is being written
    fs::last_write_time(partial / "shard_00000.h5", now - std::chrono::minutes(61));
    EXPECT_TRUE(lock.is_left_over(partial));
  }
}

// A lock that ends takes with it all directories that it made, and none that was there or holds something.
TEST(Lock, TakesItsDirectoriesAlong) {
  const Scratch scratch;
  const fs::path there = scratch.path / "there", made = there / "a" / "b" / "c";
  fs::create_directory(there);
  { const DirectoryLock lock({"output.directory", made / "", ".lock"}); }  // "c/"
  EXPECT_FALSE(fs::exists(there / "a"));
  EXPECT_TRUE(fs::exists(there));
  {
    const DirectoryLock lock({"output.directory", made, ".lock"});
    put(there / "a" / "file", "");
  }
  EXPECT_FALSE(fs::exists(there / "a" / "b"));
  EXPECT_TRUE(fs::exists(there / "a" / "file"));
  set_io_fault("open:1:13", scratch.path.c_str());
  EXPECT_THROW(DirectoryLock({"output.directory", made, ".lock"}), IoFailed);
  set_io_fault(nullptr, "");
  EXPECT_FALSE(fs::exists(there / "a" / "b"));
}

// What ends takes away directories that another start has just seen, or has opened the file in.
TEST(Lock, StartsBesideAnEndingOne) {
  constexpr int starts = 4, rounds = 300;
  const Scratch scratch;
  std::atomic<int> served{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < starts; ++i)
      threads.emplace_back([&, i] {
        for (int round = 0; round < rounds; ++round) {
          // Mostly its own, often a neighbour's.
          const std::string run = "run" + std::to_string(round % 8 == 0 ? i / 2 : i);
          const DirectoryLock lock({"output.directory", scratch.path / "a" / "b" / run, ".lock"});
          EXPECT_EQ(read_lock_text(scratch.path / "a" / "b" / run / ".lock").nonce, lock.nonce());
          ++served;
        }
      });
  }
  EXPECT_EQ(served, starts * rounds);
  // Of two that overlap the first one may leave what it made to the second.
  for (const auto& entry : fs::recursive_directory_iterator(scratch.path)) EXPECT_TRUE(entry.is_directory()) << entry;
}

// Given back early, another job has it; the end of the first one changes nothing there.
TEST_P(Locks, AreGivenBackOnce) {
  const LockRig rig(GetParam());
  auto first = std::make_unique<DirectoryLock>(rig.directory(), rig.times);
  first->give_back();
  EXPECT_FALSE(fs::exists(rig.path));
  const DirectoryLock second(rig.directory(), rig.times);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // beats of the first
  first.reset();
  EXPECT_EQ(read_lock_text(rig.file()).nonce, second.nonce());
  second.check();
}

TEST(Lock, SaysWhatFails) {
  const Scratch scratch;
  put(scratch.path / "file", "");
  EXPECT_THROW(DirectoryLock({"output.directory", scratch.path / "file", ".lock"}), BadInput);
  EXPECT_THROW(DirectoryLock({"output.directory", scratch.path / "file" / "below", ".lock"}), BadInput);
  const LockRig rig;
  set_io_fault("flock:1:5", rig.path.c_str());
  EXPECT_THROW(DirectoryLock(rig.directory()), IoFailed);
  set_io_fault("open:1:13", rig.path.c_str());
  EXPECT_THROW(DirectoryLock(rig.directory()), IoFailed);
}

// On a full disk the lock counts, without its text; where the text counts, it fails.
TEST(Lock, OnAFullDisk) {
  LockRig rig;
  fs::create_directory(rig.path);
  put(rig.file(), lock_text("n7, process 1, since then", draw_nonce(), 3));
  set_io_fault("write:1:28:more", rig.path.c_str());
  {
    const DirectoryLock lock(rig.directory(), rig.times);
    EXPECT_EQ(fs::file_size(rig.file()), 0u);
    EXPECT_NE(rig.refusal().find("is in use by another forge job, which holds"), std::string::npos);
    lock.check();
  }
  EXPECT_FALSE(fs::exists(rig.file()));
}

}  // namespace
}  // namespace forge::test
