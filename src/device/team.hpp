#pragma once

#include <cstdint>

#include "core/macros.hpp"

#if defined(FORGE_CUDA) && defined(__CUDACC__)
#include "device/launch.hpp"
#endif

namespace forge {

// The workers that share one row of parallel_rows: the vector lanes of one thread on the CPU, one block of team_threads
// threads on CUDA. All of them see each result; between two calls every worker sees the memory that the others wrote.
//   team.each(n, f)      f(j) for every column
//   team.sum<A>(n, f)    sum of f(j) in type A
//   team.max<A>(n, f)    largest f(j), or lowest when n = 0
//   team.each(n, m, f)   f(i, j) for every pair, i < n, j < m; the CPU's lanes run along j
//   team.column_sums<A>(n, begin, end, term, store)
//                        store(j, sum of term(r, j) over the rows r of [begin, end), in order) for every column j < n
//   team.leads()         true in exactly one worker: for writing a scalar
// On CUDA each of them is a barrier: every worker of a team must come to every call.
inline constexpr int team_threads = 256;

#if defined(FORGE_CUDA)
#if defined(__CUDACC__)

struct Team {
  FORGE_INLINE bool leads() const {
#if defined(__CUDA_ARCH__)
    return threadIdx.x == 0;
#else
    return true;
#endif
  }

  template <class F>
  FORGE_INLINE void each([[maybe_unused]] std::int64_t n, [[maybe_unused]] F f) const {
#if defined(__CUDA_ARCH__)
    for (std::int64_t j = threadIdx.x; j < n; j += blockDim.x) f(j);
    __syncthreads();
#endif
  }

  template <class F>
  FORGE_INLINE void each([[maybe_unused]] std::int64_t n, [[maybe_unused]] std::int64_t m, [[maybe_unused]] F f) const {
#if defined(__CUDA_ARCH__)
    for (std::int64_t k = threadIdx.x; k < n * m; k += blockDim.x) f(k / m, k % m);
    __syncthreads();
#endif
  }

  template <class A, class Term, class Store>
  FORGE_INLINE void column_sums([[maybe_unused]] std::int64_t n, [[maybe_unused]] std::int64_t begin,
                                [[maybe_unused]] std::int64_t end, [[maybe_unused]] Term term,
                                [[maybe_unused]] Store store) const {
#if defined(__CUDA_ARCH__)
    for (std::int64_t j = threadIdx.x; j < n; j += blockDim.x) {
      A sum = 0;
      for (std::int64_t r = begin; r < end; ++r) sum += A(term(r, j));
      store(j, sum);
    }
    __syncthreads();
#endif
  }

  template <class A, class F>
  FORGE_INLINE A sum(std::int64_t n, F f) const {
    return reduce<A>(n, f, A(0), [](A a, A b) { return a + b; });
  }

  template <class A, class F>
  FORGE_INLINE A max(std::int64_t n, F f) const {
    return reduce<A>(n, f, A(-INFINITY), [](A a, A b) { return a > b || a != a ? a : b; });
  }

 private:
  // Fixed order: each thread its columns, then a butterfly in the warp, then the warps in order.
  template <class A, class F, class Op>
  FORGE_INLINE A reduce([[maybe_unused]] std::int64_t n, [[maybe_unused]] F f, A identity,
                        [[maybe_unused]] Op op) const {
    A value = identity;
#if defined(__CUDA_ARCH__)
    FORGE_SHARED(A, partial, 32);
    for (std::int64_t j = threadIdx.x; j < n; j += blockDim.x) value = op(value, A(f(j)));
    for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = identity;
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) value = op(value, partial[warp]);
    __syncthreads();
#endif
    return value;
  }
};

#endif
#else

struct Team {
  bool leads() const { return true; }

  template <class F>
  FORGE_INLINE void each(std::int64_t n, const F& f) const {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) f(j);
  }

  template <class F>
  FORGE_INLINE void each(std::int64_t n, std::int64_t m, const F& f) const {
    for (std::int64_t i = 0; i < n; ++i) {
#pragma omp simd
      for (std::int64_t j = 0; j < m; ++j) f(i, j);
    }
  }

  template <class A, class Term, class Store>
  FORGE_INLINE void column_sums(std::int64_t n, std::int64_t begin, std::int64_t end, const Term& term,
                                const Store& store) const {
    constexpr std::int64_t block = 256;  // row by row, so that memory is read in order
    A sums[block];
    for (std::int64_t first = 0; first < n; first += block) {
      const std::int64_t width = n - first < block ? n - first : block;
#pragma omp simd
      for (std::int64_t j = 0; j < width; ++j) sums[j] = 0;
      for (std::int64_t r = begin; r < end; ++r) {
#pragma omp simd
        for (std::int64_t j = 0; j < width; ++j) sums[j] += A(term(r, first + j));
      }
#pragma omp simd
      for (std::int64_t j = 0; j < width; ++j) store(first + j, sums[j]);
    }
  }

  template <class A, class F>
  FORGE_INLINE A sum(std::int64_t n, const F& f) const {
    A value = 0;
#pragma omp simd reduction(+ : value)
    for (std::int64_t j = 0; j < n; ++j) value += A(f(j));
    return value;
  }

  template <class A, class F>
  FORGE_INLINE A max(std::int64_t n, const F& f) const {
    A value = -__builtin_inff();
    A poison = 0;  // a maximum that keeps NaN would not vectorise: x - x is 0, or NaN for NaN and Inf
#pragma omp simd reduction(max : value) reduction(+ : poison)
    for (std::int64_t j = 0; j < n; ++j) {
      const A x = A(f(j));
      value = x > value ? x : value;
      poison += x != x ? x : A(0);
    }
    return value + poison;
  }
};

#endif

}  // namespace forge
