// gemm_bench [THREADS [REPEATS]]: GFLOP/s of the products of a training step, the best of some repeats. Not a test.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "device/device_memory.hpp"
#include "device/random_values.hpp"
#include "kernels/gemm/gemm.hpp"

namespace {

using namespace forge;

struct Layer {
  std::int64_t rows, out, in;  // y(rows,out) = x(rows,in) W(out,in)^T
};

template <class T, class TC>
double gigaflops(Gemm& gemm, Stream& stream, const Layer& s, int pass, int repeats) {
  const Buffer x(static_cast<std::size_t>(s.rows * s.in) * sizeof(T)),
      w(static_cast<std::size_t>(s.out * s.in) * sizeof(TC));
  const Buffer y(static_cast<std::size_t>(s.rows * s.out) * sizeof(T));
  const auto view = [](const Buffer& b, std::int64_t r, std::int64_t c, auto* type) {
    return View<std::remove_pointer_t<decltype(type)>, 2>(reinterpret_cast<decltype(type)>(b.data()), {{r, c}});
  };
  fill_random(stream, view(x, s.rows, s.in, static_cast<T*>(nullptr)), 0);
  fill_random(stream, view(y, s.rows, s.out, static_cast<T*>(nullptr)), 1);
  if (pass == 2)
    fill_random(stream, view(w, s.out, s.in, static_cast<TC*>(nullptr)), 2);
  else
    fill_random(stream, view(w, s.out, s.in, static_cast<T*>(nullptr)), 2);
  double best = 1e30;
  for (int i = 0; i <= repeats; ++i) {
    stream.synchronize();
    const auto start = std::chrono::steady_clock::now();
    const T* in = nullptr;
    if (pass == 0)  // y = x W^T
      gemm(stream, Transpose::no, Transpose::yes, 1.0, view(x, s.rows, s.in, in), view(w, s.out, s.in, in), 0.0,
           view(y, s.rows, s.out, static_cast<T*>(nullptr)));
    else if (pass == 1)  // dx = dy W
      gemm(stream, Transpose::no, Transpose::no, 1.0, view(y, s.rows, s.out, in), view(w, s.out, s.in, in), 0.0,
           view(x, s.rows, s.in, static_cast<T*>(nullptr)));
    else  // dW += dy^T x
      gemm(stream, Transpose::yes, Transpose::no, 1.0, view(y, s.rows, s.out, in), view(x, s.rows, s.in, in), 1.0,
           view(w, s.out, s.in, static_cast<TC*>(nullptr)));
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i > 0) best = std::min(best, seconds);  // the first makes primitives and touches pages
  }
  return 2e-9 * static_cast<double>(s.rows) * static_cast<double>(s.out) * static_cast<double>(s.in) / best;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1, repeats = argc > 2 ? std::atoi(argv[2]) : 10;
  const std::size_t workspace_bytes = 64 << 20;
  const Buffer workspace(workspace_bytes);
  Gemm gemm(workspace.data(), workspace_bytes);
  Stream stream(threads);
  const std::vector<Layer> layers = {{2048, 512, 256},  {2048, 256, 256},  {2048, 1408, 256},  {2048, 256, 704},
                                     {2048, 1536, 512}, {2048, 2816, 512}, {2048, 512, 1408},  {1024, 2304, 768},
                                     {1024, 4096, 768}, {1024, 768, 2048}, {2048, 4096, 1024}, {256, 50304, 768},
                                     {1, 2304, 768}};
  std::printf("%d thread(s), GFLOP/s: forward x W^T, input gradient dy W, weight gradient += dy^T x\n", threads);
  std::printf("%6s %6s %6s | %20s | %20s | %20s\n", "rows", "out", "in", "fp64", "fp32", "bf16");
  for (const Layer& layer : layers) {
    std::printf("%6ld %6ld %6ld", static_cast<long>(layer.rows), static_cast<long>(layer.out),
                static_cast<long>(layer.in));
    std::printf(" |");
    for (int pass = 0; pass < 3; ++pass)
      std::printf(" %6.0f", gigaflops<double, double>(gemm, stream, layer, pass, repeats));
    std::printf(" |");
    for (int pass = 0; pass < 3; ++pass)
      std::printf(" %6.0f", gigaflops<float, float>(gemm, stream, layer, pass, repeats));
    std::printf(" |");
    for (int pass = 0; pass < 3; ++pass)
      std::printf(" %6.0f", gigaflops<bf16, float>(gemm, stream, layer, pass, repeats));
    std::printf("\n");
  }
}
