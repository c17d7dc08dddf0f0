#pragma once

#include <string>

namespace vgpu {

// Where a GPU would answer with wrong numbers, or not at all, the process ends: the text and its place go to stderr,
// the exit code is a failed device's (6).
inline constexpr int fail_code = 6;
[[noreturn]] void fail(const std::string& what);

// The name of a function of the program or its libraries, that contains the address; internal ones included.
std::string name_of_function(const void* address);

}  // namespace vgpu
