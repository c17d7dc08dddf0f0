#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace forge {

// The text of a lock's file: a line for people, then values that other starts compare.
struct LockText {
  std::string text;          // all of it; "": there is none
  std::string who;           // "n1, process 1234, since 2026-05-06 07:08:09 UTC, Slurm job 77"
  std::string nonce = {};    // "": it is no text of forge's
  std::string boot = {};     // of the node's kernel
  std::string job = {};      // of Slurm, "-": none
  std::int64_t restart = 0;  // number of the start of the Slurm job
};

// Reads a file that may hold anything, or not be there.
LockText read_lock_text(const std::string& file);
// The text of this process, which is `who`; `beats`: a number that changes.
std::string lock_text(const std::string& who, const std::string& nonce, std::uint64_t beats);

// Who holds the lock of this file at the moment, as its text says; "": nobody whom this node knows of, or no file.
std::string holder_of_lock(const std::string& file);

// A lock's target: a key of the deck, its directory, which is made where it isn't there, and a file in it. `output`:
// the one file there that is meant, "": all of the directory.
struct LockedDirectory {
  std::string key, path, file;
  std::string output = {};
  std::string name() const { return output.empty() ? path : output; }
};

// Seconds.
struct LockTimes {
  double wait = 30;  // for a job that is ending
  double same_job =
      240;  // for an earlier start of the same Slurm job: file servers keep a lost node's locks for minutes
  // Where the file's text counts: how often a holder renews it; how long it stays as it is until its holder counts as
  // dead; when a new holder looks whether another one has written it at the same time.
  double beat = 3, silence = 15, settle = 1;
  // Called once, when it begins to wait for another job: who that is.
  std::function<void(const std::string&)> say = nullptr;
};

// The right to write in a directory, of one job at a time: a lock (flock) on a file there, whose text says who holds
// it. The lock ends with its process, however that ends; a file that a killed job has left is no obstacle. Some file
// systems have no such locks, others have them for each node: there the text counts too, which its holder renews.
class DirectoryLock {
 public:
  // Waits for a job that holds it; then throws BadInput with that job's node, process and start. Throws IoFailed where
  // the file can't be written.
  explicit DirectoryLock(LockedDirectory directory, LockTimes times = {});
  // give_back()
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  // No other job can be writing there. Else warning() says why, for the log.
  bool certain() const { return reach_ == Reach::everywhere; }
  std::string warning() const;
  const std::string& nonce() const { return nonce_; }
  const std::string& file() const { return file_; }
  // Whether something unfinished in the directory was left by a job that is dead. Where that isn't certain, a file
  // written within the last hour, by the file system's clock, may be a living job's.
  bool is_left_over(const std::string& path) const;
  // Throws IoFailed where another job has taken the directory.
  void check() const;
  // Likewise; where the directory or the file was removed or replaced, it is made anew, and the lock taken again. True:
  // it is another directory now.
  bool keep();
  // For a job that writes nothing there any more. Removes the file, and of the directories that this object made those
  // that are empty.
  void give_back();

 private:
  enum class Reach { everywhere, this_node, nowhere };  // of flock

  void wait_for_turn();
  bool try_lock();
  void unlock();
  bool is_free(const LockText& holder, double silent) const;
  bool claim();
  void write_text(int descriptor, std::uint64_t beats) const;
  void renew_text(const std::stop_token& stop) const;

  LockedDirectory directory_;
  LockTimes times_;
  std::string file_, who_, nonce_;
  Reach reach_ = Reach::everywhere;
  int lock_ = -1;                                  // descriptor of the file
  std::pair<std::uint64_t, std::uint64_t> place_;  // device and inode of the directory
  std::vector<std::filesystem::path> made_;        // directories, the outermost first
  std::jthread renewal_;                           // last: it uses all of the above
};

}  // namespace forge
