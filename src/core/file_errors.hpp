#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>

#include "core/error.hpp"

namespace forge {

// The rights on an input are missing: bad input; of a checkpoint's file nothing is known, so that it is no damage.
class NotPermitted : public BadInput {
 public:
  using BadInput::BadInput;
};

// There is no room on a file system: an IoFailed that others add figures to.
class NoSpace : public IoFailed {
 public:
  using IoFailed::IoFailed;
};

// Whether an errno says that an input's name is wrong: no such file, or a part of the path is no directory.
bool is_wrong_name(int error);
// Whether an errno may be gone at the next try: a server that was away, a table that was full.
bool may_pass(int error);

// "PATH: cause" of an error of std::filesystem, else its own words.
std::string text_of(const std::system_error& error);

// Throws the error of an input that could not be opened or looked at: BadInput where its name is wrong, NotPermitted,
// else IoFailed. `hint`: stands behind the cause.
[[noreturn]] void throw_input_error(const std::string& text, int error, const std::string& hint = "");
// IoFailed, or NoSpace; `call` of `path` has failed.
[[noreturn]] void throw_io_error(const std::string& call, const std::string& path, int error);

// How long the tries of a call that fails are apart, in milliseconds.
inline constexpr int naps_between_tries[] = {10, 100, 500};

// A call that gives a negative number and errno where it fails, made again where the error may pass.
template <class F>
auto tried(F call) {
  for (const int nap : naps_between_tries) {
    const auto result = call();
    if (result >= 0 || !may_pass(errno)) return result;
    std::this_thread::sleep_for(std::chrono::milliseconds(nap));
  }
  return call();
}

// As tried(), for reading by std::filesystem, whose errors become IoFailed, or BadInput where a name is wrong.
template <class F>
auto reading(F f) {
  for (std::size_t tries = 0;; ++tries) {
    try {
      return f();
    } catch (const std::system_error& error) {
      const int number = error.code().value();
      if (!may_pass(number) || tries == std::size(naps_between_tries)) throw_input_error(text_of(error), number);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(naps_between_tries[tries]));
  }
}

// Whether an open file still has the name that it was opened by: it may have been removed or replaced since. Where that
// can't be known, `unknown`.
bool has_still_name(int descriptor, const std::string& path, bool unknown = true);

// Whether there is a regular file of this name, or a link to one; not where that can't be known.
inline bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// Bytes free for this user on the file system of `path`, which need not exist yet; −1: unknown.
std::int64_t free_bytes_at(const std::string& path);

}  // namespace forge
