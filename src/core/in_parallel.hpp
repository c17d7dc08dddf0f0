#pragma once

#include <cstddef>
#include <exception>
#include <vector>

namespace forge {

// Calls f(i) for every i of [0, count), on OpenMP's threads, each taking the next that is left. Throws what the call of
// the lowest i threw, when all have ended.
template <class F>
void in_parallel(std::size_t count, const F& f) {
  std::vector<std::exception_ptr> errors(count);
#pragma omp parallel for schedule(dynamic)
  for (std::size_t i = 0; i < count; ++i) try {
      f(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace forge
