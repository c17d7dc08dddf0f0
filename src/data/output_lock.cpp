#include "data/output_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.hpp"

namespace forge {

void check_output(const std::vector<std::string>& inputs, const std::string& output) {
  std::error_code ignored;
  if (std::filesystem::is_directory(output, ignored))
    throw BadInput("the output " + output + " is a directory; legal: a file's name");
  // A finished output takes the place of what has its name.
  const auto kind = std::filesystem::symlink_status(output, ignored).type();
  if (kind == std::filesystem::file_type::symlink)
    throw BadInput("the output " + output +
                   " is a symbolic link, which would be replaced; legal: the name it leads to");
  if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular)
    throw BadInput("the output " + output + " is a device or a pipe, which would be replaced; legal: a file's name");
  // What is written on the way, and what formats have beside their tokens.
  std::vector<std::string> beside{std::filesystem::path(output).replace_extension(".idx")};
  for (const char* end : {".partial", ".progress", ".progress.new", ".index", ".metadata"})
    beside.push_back(output + end);
  for (const std::string& input : inputs) {
    if (std::filesystem::equivalent(input, output, ignored)) throw BadInput(input + ": is the output file too");
    for (const std::string& name : beside)
      if (std::filesystem::equivalent(input, name, ignored))
        throw BadInput(input + ": " + name + " is written with " + output + "; choose another --output");
  }
}

void remove_notes(const std::string& output) {
  for (const char* end : {".progress", ".progress.new"}) ::unlink((output + end).c_str());
}

void OutputLock::make_directories(const std::string& output) {
  const std::filesystem::path directory = std::filesystem::path(output).parent_path();
  std::filesystem::path at;
  for (const auto& part : directory) {
    at /= part;
    if (::mkdir(at.c_str(), 0777) == 0) {
      made_.push_back(at.string());
    } else if (errno == ENOTDIR) {
      throw BadInput("the output " + output + ": " + at.parent_path().string() + " is a file; legal: a directory");
    } else if (errno != EEXIST) {
      throw IoFailed("make the directory " + at.string() + " of the output " + output + ": " + std::strerror(errno));
    }
  }
}

OutputLock::OutputLock(const std::string& output) : path_(output + ".partial") {
  make_directories(output);
  // Who ends renames or removes the file: who had opened it before would hold a lock that nobody else sees.
  do {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno == ELOOP)
      throw BadInput(path_ + " is a symbolic link, and " + output +
                     " is written under that name first; legal: another --output, or remove the link");
    if (descriptor_ < 0) throw IoFailed("open " + path_ + ": " + std::strerror(errno));
    int status = 0;
    while ((status = ::flock(descriptor_, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
    }
    if (status != 0 && errno == EWOULDBLOCK) {
      ::close(descriptor_);
      throw BadInput(output + " is being written by another process, which holds " + path_ +
                     "; wait for it to end, or choose another --output");
    }
  } while (!has_name());
}

OutputLock::~OutputLock() {
  if (has_name()) ::unlink(path_.c_str());
  ::close(descriptor_);
  // Fails where something is in them.
  for (auto at = made_.rbegin(); at != made_.rend(); ++at) ::rmdir(at->c_str());
}

bool OutputLock::has_name() const {
  struct stat opened, named;
  return ::fstat(descriptor_, &opened) == 0 && ::lstat(path_.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace forge
