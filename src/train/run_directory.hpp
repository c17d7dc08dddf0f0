#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/directory_lock.hpp"
#include "train/log_file.hpp"

namespace forge {

// output.directory while a job owns it: deck.yaml, job_info, log.txt, metrics.jsonl. Only one rank of a job has one.
// Failures throw IoFailed.
class RunDirectory {
 public:
  // Makes and locks the directory (DirectoryLock), waiting up to `wait_seconds` for a job that is ending; then BadInput
  // names that job. Temporaries that a dead job has left are removed. One of the two below comes next.
  RunDirectory(const std::string& path, double wait_seconds = 30);
  // A new run: metrics and log of an earlier one are moved aside (metrics.1.jsonl, …).
  void begin();
  // The run goes on behind `step`: metrics.jsonl is cut behind that step's last line, a torn line included; the log
  // grows.
  void resume(std::int64_t step);
  // The log and the metrics that can't be written wait for the disk, instead of an error (LogFile).
  void keep_what_fails();

  // A whole file, under its name only when it is complete.
  void write_file(const std::string& name, const std::string& text) const;
  void log(const std::string& text) { log_.write(text); }
  void metrics(const std::string& line) { metrics_.write(line); }
  // At the end of a run: throws where some of it waits still.
  void finish();
  // For the screen: what has begun to fail, or works again.
  std::string take_news();
  const DirectoryLock& lock() const { return lock_; }
  // Of a run that has written nothing and won't (DirectoryLock).
  void give_back() { lock_.give_back(); }

 private:
  void open_logs();

  std::string path_;
  DirectoryLock lock_;
  LogFile log_, metrics_;
};

}  // namespace forge
