#pragma once

#include <string>

namespace forge {

// A file or a directory, which goes when the process ends before this object does: failures that
// nobody catches unwind nothing (core/last_words.hpp), and whoever speaks last words removes these first.
class LeftOver {
 public:
  explicit LeftOver(std::string path);
  ~LeftOver();
  LeftOver(const LeftOver&) = delete;
  LeftOver& operator=(const LeftOver&) = delete;

 private:
  std::string path_;
};

// Removes the files and directories of all that live; before the process ends.
void remove_left_overs();

}  // namespace forge
