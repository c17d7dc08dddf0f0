#pragma once

#include <filesystem>

#include "core/error.hpp"

namespace forge {

// f(), where an error of std::filesystem is an IoFailed.
template <class F>
auto with_io_errors(F f) {
  try {
    return f();
  } catch (const std::filesystem::filesystem_error& error) {
    throw IoFailed(error.what());
  }
}

}  // namespace forge
