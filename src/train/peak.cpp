#include "train/peak.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "device/memory.hpp"

namespace forge {

namespace {

template <class T>
double measure(Stream& stream, Gemm& gemm, std::int64_t n) {
  const std::size_t bytes = static_cast<std::size_t>(n * n) * sizeof(T);
  const Buffer a(bytes), b(bytes), c(bytes);
  const Array<std::int64_t, 2> square{{n, n}};
  for (const Buffer* x : {&a, &b, &c}) fill_zero(stream, x->data(), bytes);
  auto view = [&](const Buffer& x) { return View<T, 2>(reinterpret_cast<T*>(x.data()), square); };
  double best = 0, spent = 0;
  for (int repeat = 0; repeat < 50 && (repeat < 3 || spent < 0.3); ++repeat) {
    stream.synchronize();
    const auto start = std::chrono::steady_clock::now();
    gemm(stream, Transpose::no, Transpose::yes, 1.0, View<const T, 2>(view(a)), View<const T, 2>(view(b)), 0.0,
         view(c));
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    spent += seconds;
    if (repeat > 0) best = std::max(best, 2.0 * static_cast<double>(n) * static_cast<double>(n * n) / seconds);
  }
  return best;
}

}  // namespace

double measure_peak(Stream& stream, Gemm& gemm, DType compute) {
  const std::int64_t n = std::string_view(device_info().kind) == "cuda" ? 8192 : 1024;
  switch (compute) {
    case DType::f64:
      return measure<double>(stream, gemm, n / 4);
    case DType::bf16:
      return measure<bf16>(stream, gemm, n);
    default:
      return measure<float>(stream, gemm, n);
  }
}

}  // namespace forge
