#pragma once

#include <cstdint>

#include "device/parallel.hpp"

namespace forge {

// sum += x, in the body of parallel_sums: of integers, whose sums don't depend on their order.
FORGE_INLINE void add_to(std::int64_t& sum, std::int64_t x) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(&sum), static_cast<unsigned long long>(x));
#else
  sum += x;
#endif
}

// f(i) for every i < n, where f adds to sums that others add to: on the CPU one after the other.
#if !defined(FORGE_CUDA)
template <class F>
void parallel_sums(Stream& stream, std::int64_t n, F f) {
  stream.run([=] {
    for (std::int64_t i = 0; i < n; ++i) f(i);
  });
}
#elif defined(__CUDACC__)
template <class F>
void parallel_sums(Stream& stream, std::int64_t n, F f) {
  parallel_for(stream, n, f);
}
#endif

}  // namespace forge
