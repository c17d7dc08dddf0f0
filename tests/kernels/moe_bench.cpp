// moe_bench [THREADS [REPEATS]]: the experts of a layer, forward and backward: milliseconds by the clock and of
// processor time (which other programs on the machine disturb less), for the same work on more and more experts. Not a
// test.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <type_traits>
#include <vector>

#include "core/normal.hpp"
#include "device/device_memory.hpp"
#include "device/random_values.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "kernels/gemm/gemm.hpp"

namespace {

using namespace forge;
using std::int64_t;

class Memory {
 public:
  template <class T, int N>
  View<T, N> take(Array<int64_t, N> extents) {
    int64_t n = 1;
    for (const int64_t e : extents) n *= e;
    buffers_.emplace_back(static_cast<std::size_t>(n) * sizeof(T));
    const View<T, N> view(reinterpret_cast<T*>(buffers_.back().data()), extents);
    Stream stream;
    if constexpr (std::is_integral_v<T>)  // what routing and sorting write
      fill_zero(stream, view.data, buffers_.back().bytes());
    else
      fill_random(stream, view, buffers_.size(), 0.02);  // small: products of products stay finite
    stream.synchronize();
    return view;
  }

 private:
  std::vector<Buffer> buffers_;
};

struct Shape {
  int64_t rows, chosen, width, ffn;
};

struct Cost {
  double clock = 1e30, processor = 1e30;  // ms
};

double processor_ms() {
  return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

template <class Work>
Cost measure(Stream& stream, int repeats, const Work& work) {
  Cost best;
  for (int i = 0; i <= repeats; ++i) {
    stream.synchronize();
    const auto start = std::chrono::steady_clock::now();
    const double used = processor_ms();
    work();
    stream.synchronize();
    if (i == 0) continue;  // the first touches pages
    const std::chrono::duration<double, std::milli> clock = std::chrono::steady_clock::now() - start;
    best.clock = std::min(best.clock, clock.count());
    best.processor = std::min(best.processor, processor_ms() - used);
  }
  return best;
}

template <class T>
void run(Gemm& gemm, Stream& stream, const Shape& n, int64_t E, int repeats) {
  using A = acc_t<T>;
  Memory memory;
  const int64_t R = n.rows, k = n.chosen, P = R * k, C = n.width, F = n.ffn;
  auto x = memory.take<T, 2>({{R, C}}), rows = memory.take<T, 2>({{P, C}}), gate_up = memory.take<T, 2>({{P, 2 * F}}),
       act = memory.take<T, 2>({{P, F}}), out = memory.take<T, 2>({{P, C}});
  auto w1 = memory.take<T, 3>({{E, 2 * F, C}}), w2 = memory.take<T, 3>({{E, C, F}});
  auto dw1 = memory.take<A, 3>({{E, 2 * F, C}}), dw2 = memory.take<A, 3>({{E, C, F}});
  auto logits = memory.take<A, 2>({{R, E}}), scores = memory.take<A, 2>({{R, E}}),
       weights = memory.take<A, 2>({{R, k}});
  auto experts = memory.take<std::int32_t, 2>({{R, k}}), place = memory.take<std::int32_t, 2>({{R, k}});
  auto sort = memory.take<std::int32_t, 2>({{moe_sort_rows(P), E}});
  auto order = memory.take<std::int32_t, 1>({{P}});
  auto counts = memory.take<int64_t, 1>({{E}}), offsets = memory.take<int64_t, 1>({{E + 1}});
  auto values = memory.take<A, 1>({{P}}), d_values = memory.take<A, 1>({{P}});
  std::vector<A> noise(static_cast<std::size_t>(R * E));
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<A>(normal(1, i));
  copy_to_device(stream, logits.data, noise.data(), noise.size() * sizeof(A));
  RouterOptions options;
  options.experts = E;
  options.chosen = k;
  std::vector<int64_t> bounds(static_cast<std::size_t>(E + 1));

  const Cost routing = measure(stream, repeats, [&] {
    router_forward<A>(stream, options, logits, View<A, 1>(), weights, experts, scores);
    moe_sort(stream, experts, sort, counts, offsets, order, place);
    copy_to_host(stream, bounds.data(), offsets.data, bounds.size() * sizeof(int64_t));
  });
  const Cost moving = measure(stream, repeats, [&] {
    permute_rows<T>(stream, x, order, k, rows);
    permute_weights<A>(stream, weights, order, values);
    weighted_swiglu_forward<T>(stream, gate_up, values, act);
    weighted_swiglu_backward<T>(stream, gate_up, values, act, gate_up, d_values);
    unpermute_rows<T>(stream, out, place, 0, View<const A, 2>(), false, x);
  });
  const Cost forward = measure(stream, repeats, [&] {
    gemm.grouped_rows<T, T>(stream, bounds, Transpose::yes, 1.0, rows, w1, 0.0, gate_up);
    gemm.grouped_rows<T, T>(stream, bounds, Transpose::yes, 1.0, act, w2, 0.0, out);
  });
  const Cost inputs = measure(stream, repeats, [&] {
    gemm.grouped_rows<T, T>(stream, bounds, Transpose::no, 1.0, out, w2, 0.0, act);
    gemm.grouped_rows<T, T>(stream, bounds, Transpose::no, 1.0, gate_up, w1, 0.0, rows);
  });
  const Cost parameters = measure(stream, repeats, [&] {
    gemm.grouped_sums<T, A>(stream, bounds, 1.0, out, act, 1.0, dw2);
    gemm.grouped_sums<T, A>(stream, bounds, 1.0, gate_up, rows, 1.0, dw1);
  });
  const double flops = 2e-6 * static_cast<double>(P) * 3 * static_cast<double>(C * F);
  std::printf("%4ld |", static_cast<long>(E));
  Cost total{0, 0};
  for (const Cost& c : {routing, moving, forward, inputs, parameters}) {
    std::printf(" %7.2f %7.2f |", c.clock, c.processor);
    total.clock += c.clock;
    total.processor += c.processor;
  }
  std::printf(" %7.2f %7.2f | %5.0f\n", total.clock, total.processor,
              3 * flops / (forward.processor + inputs.processor + parameters.processor));
  std::fflush(stdout);
}

template <class T>
void table(const char* type, Gemm& gemm, Stream& stream, const Shape& shape, int repeats) {
  std::printf("\n%s, %ld rows, %ld chosen, width %ld, ffn %ld: ms by the clock, ms of processor time\n", type,
              static_cast<long>(shape.rows), static_cast<long>(shape.chosen), static_cast<long>(shape.width),
              static_cast<long>(shape.ffn));
  std::printf(
      "   E | router and sort | permute, swiglu | forward         | input gradient  | weight gradient | sum            "
      " | GFLOP/s of a core\n");
  for (const int64_t experts : {8, 16, 64}) run<T>(gemm, stream, shape, experts, repeats);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1, repeats = argc > 2 ? std::atoi(argv[2]) : 10;
  const std::size_t workspace_bytes = 64 << 20;
  const Buffer workspace(workspace_bytes);
  Gemm gemm(workspace.data(), workspace_bytes);
  Stream stream(threads);
  std::printf("%d thread(s)\n", threads);
  for (const Shape& shape : {Shape{2048, 2, 256, 512}, Shape{4096, 2, 512, 1024}}) {
    table<float>("fp32", gemm, stream, shape, repeats);
    table<bf16>("bf16", gemm, stream, shape, repeats);
  }
}
