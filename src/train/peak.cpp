#include "train/peak.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "device/arena.hpp"
#include "device/random_values.hpp"
#include "kernels/gemm.hpp"

namespace forge {

namespace {

// The larger of n, n/2, … of which three square matrices fit.
template <class T>
std::int64_t fitting_extent(std::int64_t n, std::size_t bytes) {
  constexpr std::int64_t least = 16;
  while (n >= least && 3 * align_up(to_size(n * n) * sizeof(T)) > bytes) n /= 2;
  if (n < least)
    throw BadInput("the planned memory leaves no " + format_bytes(3 * least * least * sizeof(T)) +
                   " to measure the rate of products in; give machine.peak_tflops");
  return n;
}

template <class T>
double measure(Stream& stream, Arena& arena, Gemm& gemm, std::int64_t wanted) {
  const std::int64_t n = fitting_extent<T>(wanted, arena.capacity() - arena.live());
  const Array<std::int64_t, 2> square{{n, n}};
  const auto matrix = [&] {
    void* const p = arena.allocate(to_size(n * n) * sizeof(T), Category::workspace);
    return View<T, 2>(static_cast<T*>(p), square);
  };
  const View<T, 2> a = matrix(), b = matrix(), c = matrix();
  fill_random(stream, a, 0);
  fill_random(stream, b, 1);
  double best = 0, spent = 0;
  for (int repeat = 0; repeat < 50 && (repeat < 3 || spent < 0.3); ++repeat) {
    stream.synchronize();
    const auto start = std::chrono::steady_clock::now();
    gemm(stream, Transpose::no, Transpose::yes, 1.0, View<const T, 2>(a), View<const T, 2>(b), 0.0, c);
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    spent += seconds;
    if (repeat > 0) best = std::max(best, 2.0 * static_cast<double>(n) * static_cast<double>(n * n) / seconds);
  }
  return best;
}

}  // namespace

double measure_peak(int threads, std::size_t library_bytes, std::size_t arena_bytes, DType compute) {
  Stream stream(threads);
  Arena arena(arena_bytes);
  Gemm gemm(arena.allocate(library_bytes, Category::library), library_bytes);
  const std::int64_t n = std::string_view(device_info().kind) == "cuda" ? 8192 : 1024;
  switch (compute) {
    case DType::f64:
      return measure<double>(stream, arena, gemm, n / 4);
    case DType::bf16:
      return measure<bf16>(stream, arena, gemm, n);
    default:
      return measure<float>(stream, arena, gemm, n);
  }
}

}  // namespace forge
