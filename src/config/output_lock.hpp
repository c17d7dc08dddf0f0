#pragma once

#include <string>
#include <vector>

#include "config/directory_lock.hpp"
#include "core/left_over.hpp"

namespace forge {

// BadInput: an input is the output, or a file beside it that is written on the way; or the output is a directory, a
// link, a device or a pipe. IoFailed: that can't be found out.
void check_output(const std::vector<std::string>& inputs, const std::string& output);

// Keeps other processes from writing an output of the same name, from now on: a DirectoryLock on .OUTPUT.lock beside
// it, in a directory that is made where it isn't there. Removes killed writers' files of the output.
class OutputLock {
 public:
  // BadInput: another process holds it. IoFailed: there is no place for the file. `key`: for messages.
  explicit OutputLock(const std::string& output, const std::string& key = "--output");

 protected:
  explicit OutputLock(const LockedDirectory& place);

 private:
  DirectoryLock lock_;
  LeftOver file_;
};

// The lock's file in an output that is a directory.
inline constexpr const char* directory_lock_name = ".forge.lock";
// The lock of an output that is a directory of files.
class OutputDirectoryLock : OutputLock {
 public:
  explicit OutputDirectoryLock(const std::string& directory, const std::string& key = "--output")
      : OutputLock({key, directory, directory_lock_name}) {}
};

}  // namespace forge
