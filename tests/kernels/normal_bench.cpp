#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/normal.hpp"
#include "device/device_memory.hpp"
#include "kernels/kernels.hpp"

// normal_bench [THREADS [MILLIONS]]: seconds for so many initial values in fp32, by fill_normal and by the C library's
// log and cos, in turn, the best of three.

namespace {

using namespace forge;

// The same numbers, as the formula is written.
double by_library(std::uint64_t key, std::uint64_t element) {
  const auto w = philox(key, element, 0);
  return std::sqrt(-2 * std::log(uniform(w[0], w[1]))) * std::cos(2 * std::acos(-1.0) * uniform(w[2], w[3]));
}

template <class F>
double seconds(F f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::int64_t n = (argc > 2 ? std::atoll(argv[2]) : 270) * 1000000;
  Stream stream(threads);
  const Buffer memory(static_cast<std::size_t>(n) * sizeof(float));
  const View<float, 2> to(reinterpret_cast<float*>(memory.data()), {{1, n}});
  fill_zero(stream, memory.data(), memory.bytes());
  double best = HUGE_VAL, library = HUGE_VAL;
  for (int repeat = 0; repeat < 3; ++repeat) {
    best = std::min(best, seconds([&] { fill_normal(stream, {7, 0, 0.02}, 0, 0, to); }));
    library = std::min(library, seconds([&] {
#pragma omp parallel for num_threads(threads)
                         for (std::int64_t i = 0; i < n; ++i)
                           to.data[i] = static_cast<float>(0.02 * by_library(7, static_cast<std::uint64_t>(i)));
                       }));
  }
  std::printf("%lld values, %d threads: %.3f s, by the C library %.3f s: %.1f times\n", static_cast<long long>(n),
              threads, best, library, library / best);
}
