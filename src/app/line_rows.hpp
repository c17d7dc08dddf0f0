#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/file_handle.hpp"

namespace forge {

// Rows, one for each line of an input, on their way to a file, or to standard output where it is "-". A file takes its
// name when it is complete; until then rows stand in OUTPUT.partial, and OUTPUT.progress has a note of how many, by
// which a run of the same call goes on behind them after a kill. Both stay where a run fails.
class LineRows {
 public:
  // `call`: must be the same for a run to go on. Throws IoFailed; BadInput where a name is no file's.
  LineRows(const std::string& output, const std::string& call);

  // Rows that an earlier run has left.
  std::int64_t kept() const { return kept_; }
  // Whether there were some of another call, which are gone.
  bool replaced_others() const { return replaced_; }
  // Appends so many rows; standard output has them at once.
  void write(const std::string& text, std::int64_t rows);
  void finish();

 private:
  void read_note();
  std::string partial() const { return output_ + ".partial"; }
  std::string note() const { return output_ + ".progress"; }

  std::string output_, call_;
  std::int64_t kept_ = 0, rows_ = 0;
  bool replaced_ = false;
  std::uint64_t written_ = 0;  // bytes
  std::optional<FileHandle> file_;
};

}  // namespace forge
