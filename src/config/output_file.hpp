#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/file_handle.hpp"
#include "core/left_over.hpp"

namespace forge {

// 16 hexadecimal digits, another text for every job: part of the names of its unfinished files.
std::string draw_nonce();
bool is_nonce(const std::string& text);
// Whether a name is `begin`, a nonce and `end`.
bool has_nonce(const std::string& name, const std::string& begin, const std::string& end);

// A file that takes its name when it is complete. Until then it is a new one beside that name, under a name that no
// other process has (NAME.<nonce>.partial). Without commit() it goes, also where a failure unwinds nothing.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  // `temporary`: its name until then, in the same directory, which belongs to this process: an older file there goes.
  OutputFile(const std::string& path, const std::string& temporary);
  OutputFile(OutputFile&&) noexcept = default;
  ~OutputFile();

  const FileHandle& file() const { return *file_; }
  const std::string& path() const { return path_; }
  // FileHandle::commit_as
  void commit();

 private:
  std::string path_, temporary_;
  std::unique_ptr<LeftOver> left_over_;  // null: nothing is left to remove
  std::optional<FileHandle> file_;
};

// Removes killed writers' files of this output: NAME.<nonce>.partial. Of whoever has the output's lock.
void remove_partial_files(const std::string& path);

// The path's name with `begin` before it and `end` behind it, in the same directory; where that is longer than file
// systems take, a shorter one, another for every name.
std::string sibling_name(const std::string& path, const std::string& begin, const std::string& end);

}  // namespace forge
