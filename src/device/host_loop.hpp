#pragma once

#include <cstdint>

#include "device/isa.hpp"

// A loop of independent iterations on the host, in the calling thread, in both builds: one body compiled for each
// vector path, chosen by the processor's features. flatten pulls the lambda into the function that has the
// target.

namespace forge::device_detail {

template <class F>
__attribute__((flatten)) void for_plain(std::int64_t begin, std::int64_t end, const F& f) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) f(i);
}
#if defined(__x86_64__)
template <class F>
__attribute__((flatten)) FORGE_TARGET_AVX2 void for_avx2(std::int64_t begin, std::int64_t end, const F& f) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) f(i);
}
template <class F>
__attribute__((flatten)) FORGE_TARGET_AVX512 void for_avx512(std::int64_t begin, std::int64_t end, const F& f) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) f(i);
}
#endif

template <class F>
void run_for(std::int64_t begin, std::int64_t end, const F& f) {
#if defined(__x86_64__)
  if (host_isa() == Isa::avx512) return for_avx512(begin, end, f);
  if (host_isa() == Isa::avx2) return for_avx2(begin, end, f);
#endif
  for_plain(begin, end, f);
}

}  // namespace forge::device_detail
