#pragma once

#include <cstddef>
#include <exception>
#include <vector>

namespace forge {

// Calls f(i) for every i of [0, count), on so many of OpenMP's threads, 0: all, each taking the next that is left.
// Throws the exception of the call of the lowest i, if any, when all have ended.
template <class F>
void in_parallel(std::size_t count, const F& f, int threads = 0) {
#ifdef __SANITIZE_THREAD__
  threads = 1;  // ThreadSanitizer doesn't see how OpenMP's threads wait for each other
#endif
  std::vector<std::exception_ptr> errors(count);
  const auto call = [&](std::size_t i) {
    try {
      f(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  if (threads > 0) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (std::size_t i = 0; i < count; ++i) call(i);
  } else {
#pragma omp parallel for schedule(dynamic)
    for (std::size_t i = 0; i < count; ++i) call(i);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace forge
