#include "core/file_errors.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace forge {

namespace {

template <std::size_t n>
bool is_one_of(const int (&known)[n], int error) {
  return std::find(std::begin(known), std::end(known), error) != std::end(known);
}

}  // namespace

bool is_wrong_name(int error) {
  constexpr int known[] = {ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EISDIR, ENXIO, EINVAL, EILSEQ};
  return is_one_of(known, error);
}

bool may_pass(int error) {
  constexpr int known[] = {EINTR, EAGAIN, EIO, ESTALE, EMFILE, ENFILE, EBUSY, ETIMEDOUT, EREMOTEIO};
  return is_one_of(known, error);
}

std::string text_of(const std::system_error& error) {
  const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  if (!file || file->path1().empty()) return error.what();
  const std::string second = file->path2().empty() ? "" : ", " + file->path2().string();
  return file->path1().string() + second + ": " + error.code().message();
}

void throw_input_error(const std::string& text, int error, const std::string& hint) {
  const std::string cause = std::strerror(error), all = (text.ends_with(cause) ? text : text + ": " + cause) + hint;
  if (is_wrong_name(error)) throw BadInput(all);
  if (error == EACCES || error == EPERM) throw NotPermitted(all);
  throw IoFailed(all);
}

void throw_io_error(const std::string& call, const std::string& path, int error) {
  const std::string text = call + " " + path + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) throw NoSpace(text);
  throw IoFailed(text);
}

bool has_still_name(int descriptor, const std::string& path, bool unknown) {
  struct stat opened, named;
  if (tried([&] { return ::lstat(path.c_str(), &named); }) != 0) return unknown && errno != ENOENT && errno != ENOTDIR;
  if (::fstat(descriptor, &opened) != 0) return unknown;
  return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

std::int64_t free_bytes_at(const std::string& path) {
  struct statvfs status {};
  std::filesystem::path at = path.empty() ? "." : path;
  while (::statvfs(at.c_str(), &status) != 0) {
    if (errno != ENOENT || at == at.parent_path()) return -1;
    at = at.has_parent_path() ? at.parent_path() : ".";
  }
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace forge
