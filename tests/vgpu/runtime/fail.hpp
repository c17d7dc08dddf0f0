#pragma once

#include <string>

namespace vgpu {

// What a GPU would answer with wrong numbers, or not at all, ends the process: the text and where it happened go to
// stderr, the exit code is that of a failed device (6).
inline constexpr int fail_code = 6;
[[noreturn]] void fail(const std::string& what);

// The name of a function of the program or its libraries, that contains the address; internal ones included.
std::string name_of_function(const void* address);

}  // namespace vgpu
