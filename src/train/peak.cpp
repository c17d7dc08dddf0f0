#include "train/peak.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "device/arena.hpp"
#include "device/core_use.hpp"
#include "device/random_values.hpp"
#include "kernels/gemm/gemm.hpp"
#include "model/buffers.hpp"

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

// Square matrices for a product.
template <class T>
struct Squares {
  View<T, 2> a, b, c;

  Squares(Arena& arena, std::int64_t n) {
    const Array<std::int64_t, 2> square{{n, n}};
    for (View<T, 2>* matrix : {&a, &b, &c})
      *matrix = View<T, 2>(static_cast<T*>(arena.allocate(to_size(n * n) * sizeof(T), Category::workspace)), square);
  }
  // The first n rows and columns.
  Squares part(std::int64_t n) const {
    Squares less = *this;
    for (View<T, 2>* matrix : {&less.a, &less.b, &less.c}) *matrix = View<T, 2>(matrix->data, {{n, n}});
    return less;
  }
};

// The best rate of products within some seconds; the first one is not counted.
template <class T>
double best_rate(Stream& stream, Gemm& gemm, const Squares<T>& of, double most_seconds) {
  const auto n = static_cast<double>(of.a.rows());
  double best = 0, spent = 0;
  for (int repeat = 0; repeat < 3 || (repeat < 1000 && spent < most_seconds); ++repeat) {
    stream.synchronize();
    const auto start = std::chrono::steady_clock::now();
    gemm(stream, Transpose::no, Transpose::yes, 1.0, View<const T, 2>(of.a), View<const T, 2>(of.b), 0.0, of.c);
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    spent += seconds;
    if (repeat > 0) best = std::max(best, 2 * n * n * n / seconds);
  }
  return best;
}

// On a CPU: long products, and short ones, some of which are over before the core has other work. No rank has more than
// its part of the node's cores, however it came to be measured while other ranks did nothing; where the cores have
// other work all the time, it is as much as one thread reaches on each.
template <class T>
double measure_on_cores(Stream& stream, Gemm& gemm, const Squares<T>& all, int ranks_of_node) {
  constexpr double busy_fraction = 0.05;
  const Squares<T> few = all.part(std::max<std::int64_t>(1, all.a.rows() / 4));
  Stream one_thread;
  const double one = best_rate(one_thread, gemm, few, 0.05);
  const double cores = std::min<double>(stream.threads(), cores_of_rank(ranks_of_node)), bound = cores * one;
  if (stream.threads() == 1 && cores == 1) return std::max(one, best_rate(one_thread, gemm, all, 0.15));
  const ShortWaits waits;
  const double waited = seconds_without_core().value_or(0);
  const auto start = std::chrono::steady_clock::now();
  const double together = std::max(best_rate(stream, gemm, all, 0.15), best_rate(stream, gemm, few, 0.1));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const bool busy = seconds_without_core().value_or(0) - waited > busy_fraction * seconds;
  return busy ? bound : std::min(bound, together);
}

template <class T>
double measure(Stream& stream, Arena& arena, Gemm& gemm, std::int64_t wanted, int ranks_of_node) {
  const std::int64_t n = fitting_extent<T>(wanted, arena.capacity() - arena.live());
  const Squares<T> squares(arena, n);
  fill_random(stream, squares.a, 0);
  fill_random(stream, squares.b, 1);
  if (std::string_view(device_info().kind) == "cpu") return measure_on_cores(stream, gemm, squares, ranks_of_node);
  return best_rate(stream, gemm, squares, 0.3);
}

}  // namespace

double measure_peak(int threads, std::size_t library_bytes, std::size_t arena_bytes, DType compute, int ranks_of_node) {
  Stream stream(threads);
  Arena arena(arena_bytes);
  Gemm gemm(arena.allocate(library_bytes, Category::library), library_bytes);
  const std::int64_t n = std::string_view(device_info().kind) == "cuda" ? 8192 : 1024;
  return with_compute_type(compute, [&](auto type) {
    return measure<decltype(type)>(stream, arena, gemm, compute == DType::f64 ? n / 4 : n, ranks_of_node);
  });
}

}  // namespace forge
