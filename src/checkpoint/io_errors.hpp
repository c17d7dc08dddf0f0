#pragma once

#include <filesystem>

#include "core/file_errors.hpp"

namespace forge {

// f(), where an error of std::filesystem is an IoFailed.
template <class F>
auto with_io_errors(F f) {
  try {
    return f();
  } catch (const std::filesystem::filesystem_error& error) {
    const int number = error.code().value();
    if (number == ENOSPC || number == EDQUOT) throw NoSpace(text_of(error));
    throw IoFailed(text_of(error));
  }
}

}  // namespace forge
