#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/directory_lock.hpp"
#include "train/log_file.hpp"
#include "train/tensorboard.hpp"
#include "train/tracker.hpp"

namespace forge {

// output.directory while a job owns it: deck.yaml, job_info, log.txt, metrics.jsonl. Only one rank of a job has one.
// Failures throw IoFailed.
class RunDirectory {
 public:
  // Makes and locks the directory (DirectoryLock), waiting for a job that is ending; then BadInput names that job.
  // BadInput where its files are links, devices or pipes. Temporaries that a dead job has left are removed. One of the
  // two below comes next.
  explicit RunDirectory(const std::string& path, const LockTimes& times = {});
  // Writes event files, too; to be called before one of the two below.
  void track(const TensorboardOptions& options) { tensorboard_ = std::make_unique<Tensorboard>(options); }
  // A new run: metrics, log and event files of an earlier one are moved aside (metrics.1.jsonl, …).
  void begin();
  // The run goes on behind `step`: metrics.jsonl is cut behind that step's last line (repair_metrics); the log grows.
  // Lines for it.
  std::vector<std::string> resume(std::int64_t step, bool own = true);
  // The run that writes here goes on behind an earlier `step`: metrics.jsonl is cut likewise, unless lines of it wait.
  void go_back(std::int64_t step);
  // elapsed_seconds of the last line that resume() has kept, 0: there is none.
  double elapsed_before() const { return elapsed_before_; }
  // Log and metrics that can't be written wait for the disk, without an error (LogFile).
  void keep_what_fails();

  // A whole file, under its name only when it is complete.
  void write_file(const std::string& name, const std::string& text) const;
  // deck.yaml, the resolved deck. Where `input` is that file with another text, it is moved aside: a line about it, or
  // "".
  std::string write_deck(const std::string& text, const std::string& input) const;
  void log(const std::string& text) { log_.write(text); }
  void metrics(const std::string& line) { metrics_.write(line); }
  Tensorboard* tensorboard() { return tensorboard_.get(); }  // null without track()
  // Forces log and metrics to the disk; of any thread, beside the above.
  void sync();
  // Now and then looks whether the metrics are there still: "" or how they were lost.
  std::string lost();
  // Sends the run to a tracker, too (output.track); behind one of the two above, with deck.yaml and job_info.json
  // there.
  void send(TrackTo to) { tracker_ = std::make_unique<Tracker>(to, path_); }
  // At the end of a run: throws where some of it still waits, or the metrics are lost. Waits for the tracker, beating,
  // at most a minute.
  void finish(Heartbeat* heartbeat = nullptr);
  // For the screen: files that begin to fail, or work again; why nothing is sent to a tracker.
  std::string take_news();
  const DirectoryLock& lock() const { return lock_; }
  // For a run that has written nothing and won't (DirectoryLock).
  void give_back() { lock_.give_back(); }

 private:
  void open_logs(std::int64_t step);  // the run goes on behind it
  std::string temporary_name() const { return path_ + "/." + lock_.nonce() + ".tmp"; }
  std::string lost_text() const;

  std::string path_;
  DirectoryLock lock_;
  LogFile log_, metrics_;
  bool keeps_ = false, named_ = false;  // `keep_what_fails()`; the files' names are on the disk
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();  // in lost()
  double elapsed_before_ = 0;
  std::unique_ptr<Tensorboard> tensorboard_;
  std::unique_ptr<Tracker> tracker_;
};

}  // namespace forge
