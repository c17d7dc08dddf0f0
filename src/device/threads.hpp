#pragma once

#include <cstddef>

namespace forge {

// Bytes of a thread's stack: the usual size where nobody sets a limit.
inline constexpr std::size_t stack_bytes = std::size_t{8} << 20;
// The least stack of a thread of OpenMP (OMP_STACKSIZE).
inline constexpr std::size_t least_stack_bytes = std::size_t{512} << 10;

// In the program's first thread, before any other: threads that are made from here on have stack_bytes, whatever
// `ulimit -s` says, and the calling one where the hard limit allows it. False where it doesn't.
bool set_stacks();
// Starts the OpenMP threads of the calling thread, the first of them being itself. Throws Shortage where the system
// doesn't give so many, BadInput where their stacks are too small.
void start_threads(int threads);
// Whether some thread does so just now: OpenMP's library ends the process where it can't.
bool threads_start();

}  // namespace forge
