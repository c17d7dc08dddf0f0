#pragma once

#include <string>
#include <vector>

namespace forge {

// BadInput: an input is the output, or a file beside it that is written on the way; or the output is a directory, a
// link, a device or a pipe.
void check_output(const std::vector<std::string>& inputs, const std::string& output);

// Removes the notes of how far a killed run was (OUTPUT.progress), for who writes the output otherwise.
void remove_notes(const std::string& output);

// Keeps other processes from writing an output of the same name: a lock (flock) on OUTPUT.partial, which the system
// takes back when the process ends, however it ends. What the file has stays, for who goes on with it. Where the file
// system has no locks, there is none. Makes the output's directory where there is none. At the end OUTPUT.partial is
// removed unless it has become the output, and so are directories that were made for nothing.
class OutputLock {
 public:
  // BadInput: another process holds it. IoFailed: there is no place for the file.
  explicit OutputLock(const std::string& output);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  bool has_name() const;
  void make_directories(const std::string& output);
  std::string path_;
  std::vector<std::string> made_;  // directories, the outermost first
  int descriptor_ = -1;
};

}  // namespace forge
