#include "core/error.hpp"

namespace forge {

namespace {

std::string describe(const std::source_location& where) {
  const std::string file = where.file_name();
  const auto src = file.rfind("src/");
  return (src == std::string::npos ? file : file.substr(src)) + ":" + std::to_string(where.line()) + " (" +
         where.function_name() + ")";
}

}  // namespace

Error::Error(const std::string& text, ExitCode code, std::source_location where)
    : std::runtime_error(text), code_(code), where_(describe(where)) {}

}  // namespace forge
