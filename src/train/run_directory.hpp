#pragma once

#include <cstdint>
#include <string>

namespace forge {

// output.directory while a job owns it: deck.yaml, job_info, log.txt, metrics.jsonl. Only one rank of a job has one.
// Every write is one call of write(2), so that a killed job leaves whole lines; failures throw IoFailed.
class RunDirectory {
 public:
  // Makes and locks the directory, waiting up to `wait_seconds` for a job that is ending; then BadInput names the file.
  // Left-over temporaries are removed. One of the two below comes next.
  RunDirectory(const std::string& path, double wait_seconds = 30);
  // A new run: metrics and log of an earlier one are moved aside (metrics.1.jsonl, …).
  void begin();
  // The run goes on behind `step`: metrics.jsonl is cut behind that step's last line, a torn line included; the log
  // grows.
  void resume(std::int64_t step);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // A whole file, under its name only when it is complete.
  void write_file(const std::string& name, const std::string& text) const;
  void log(const std::string& text);
  void metrics(const std::string& line);
  const std::string& path() const { return path_; }

 private:
  void open_logs();

  std::string path_;
  int lock_ = -1, log_ = -1, metrics_ = -1;
};

}  // namespace forge
