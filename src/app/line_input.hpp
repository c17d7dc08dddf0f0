#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// Lines of a file, all at once, or batches of lines from standard input, where an empty line ends one. Of one rank.
class LineInput {
 public:
  // `file`: "-" is standard input. BadInput: there is no such file, or it has no line.
  explicit LineInput(const std::string& file);

  // For standard input: whether there is one more batch, for which the call waits two seconds at most.
  enum class Next { batch, end, nothing_yet };
  Next next();
  // The lines at hand, of the file or of the batch, without empty ones.
  const std::vector<std::string>& lines() const { return lines_; }
  bool is_stream() const { return file_ == "-"; }
  // The hash of the file's bytes.
  std::uint64_t hash() const { return hash_; }
  // "FILE, line 12": of a line at hand, from 0.
  std::string place(std::size_t line) const;

 private:
  bool take_line();
  void read_more();

  std::string file_;
  std::vector<std::string> lines_;
  std::vector<std::int64_t> numbers_;  // of the lines at hand, from 1
  std::int64_t number_ = 0;
  std::uint64_t hash_ = 0;
  std::string unread_;                  // of standard input
  std::size_t begin_ = 0;               // in it
  bool ended_ = false, waits_ = false;  // waits_: the batch at hand isn't whole
};

}  // namespace forge
