#include <dnnl.h>
#include <omp.h>
#include <time.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/normal.hpp"
#include "device/isa.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_tiles.hpp"

// Causal attention on the CPU against oneDNN's sgemm of the same minute. Rates count only the pairs that the mask lets
// through: 4 D flops a pair forward, 10 D backward.
//   attention_bench [threads [window [head size [length]]]]

namespace forge {

namespace {

// Seconds of this thread where it works alone (other programs then don't count), else of the clock on the wall.
double now(int threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Each of the runs in turn, again and again; the shortest time of each, in seconds.
std::vector<double> shortest(int threads, const std::vector<std::function<void()>>& runs) {
  std::vector<double> best(runs.size(), std::numeric_limits<double>::infinity());
  double spent = 0;
  for (int i = 0; i < 1000 && (i < 5 || spent < 1); ++i) {
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const double start = now(threads);
      runs[r]();
      const double seconds = now(threads) - start;
      best[r] = seconds < best[r] ? seconds : best[r];
      spent += seconds;
    }
  }
  return best;
}

struct Sgemm {
  static constexpr dnnl_dim_t n = 512;
  std::vector<float> a = std::vector<float>(n * n, 1.0f), b = a, c = a;

  void run() { dnnl_sgemm('N', 'N', n, n, n, 1.0f, a.data(), n, b.data(), n, 0.0f, c.data(), n); }
  double flops() const { return 2.0 * n * n * n; }
};

template <class T>
struct Workload {
  using A = acc_t<T>;

  std::int64_t B, length, H, K, D;
  std::vector<T> qkv, o, d_o, d_qkv;
  std::vector<A> lse, delta, sums;
  std::vector<std::byte> tiles;
  std::vector<std::int32_t> positions;
  std::int64_t window;
  Stream stream;

  Workload(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t k, std::int64_t d, std::int64_t w, int threads)
      : B(b), length(t), H(h), K(k), D(d), window(w), stream(threads) {
    const auto rows = static_cast<std::size_t>(B * length), row = static_cast<std::size_t>((H + 2 * K) * D);
    qkv.resize(rows * row);
    d_qkv.resize(rows * row);
    o.resize(rows * static_cast<std::size_t>(H * D));
    d_o.resize(o.size());
    sums.resize(o.size());
    tiles.resize(static_cast<std::size_t>(threads) * attention_thread_bytes<A>(D, D));
    lse.resize(rows * static_cast<std::size_t>(H));
    delta.resize(lse.size());
    for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] = T(static_cast<float>(normal(1, i)));
    for (std::size_t i = 0; i < d_o.size(); ++i) d_o[i] = T(static_cast<float>(normal(2, i)));
    for (std::size_t i = 0; i < rows; ++i)
      positions.push_back(static_cast<std::int32_t>(i % static_cast<std::size_t>(length)));
  }

  View<T, 3> part(std::vector<T>& x, std::int64_t first, std::int64_t heads) {
    return View<T, 3>(x.data() + first * D, {{B * length, heads, D}}, (H + 2 * K) * D);
  }
  View<T, 3> whole(std::vector<T>& x) { return View<T, 3>(x.data(), {{B * length, H, D}}); }
  View<A, 2> rows(std::vector<A>& x) { return View<A, 2>(x.data(), {{B * length, H}}); }
  AttentionShape shape() {
    AttentionShape s{B, length, length, 1 / std::sqrt(static_cast<double>(D)), 0, 0, {}};
    s.workspace = tiles.data();
    s.workspace_bytes = tiles.size();
    return s;
  }
  AttentionMask mask() const {
    const View<const std::int32_t, 1> p(positions.data(), {{B * length}});
    return {p, p, {}, {}, window};
  }
  double pairs() const {
    double sum = 0;
    for (std::int64_t i = 0; i < length; ++i) sum += static_cast<double>(window && i >= window ? window : i + 1);
    return sum * static_cast<double>(B * H);
  }

  void forward() {
    attention_forward<T>(stream, shape(), mask(), part(qkv, 0, H), part(qkv, H, K), part(qkv, H + K, K), whole(o),
                         rows(lse));
  }
  void backward() {
    attention_delta<T>(stream, whole(d_o), whole(o), rows(delta));
    attention_backward<T>(stream, shape(), mask(), whole(d_o), part(qkv, 0, H), part(qkv, H, K), part(qkv, H + K, K),
                          rows(lse), rows(delta), part(d_qkv, 0, H), part(d_qkv, H, K), part(d_qkv, H + K, K),
                          View<A, 3>(sums.data(), {{B * length, H, D}}));
  }
};

template <class T>
void report(const char* type, std::int64_t length, std::int64_t D, std::int64_t window, int threads) {
  const std::int64_t B = length < 1024 ? 4 : 1;
  Workload<T> w(B, length, 8, 4, D, window, threads);
  Sgemm gemm;
  const auto seconds = shortest(threads, {[&] { gemm.run(); }, [&] { w.forward(); }, [&] { w.backward(); }});
  const double flops = static_cast<double>(D) * w.pairs() * 1e-9, sgemm = gemm.flops() * 1e-9 / seconds[0];
  const double forward = 4 * flops / seconds[1], backward = 10 * flops / seconds[2];
  std::printf("%-6s %6ld %4ld %8.1f %10.1f %6.2f %10.1f %6.2f\n", type, static_cast<long>(length), static_cast<long>(D),
              sgemm, forward, forward / sgemm, backward, backward / sgemm);
}

}  // namespace

}  // namespace forge

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const std::int64_t window = argc > 2 ? std::atoi(argv[2]) : 0, only = argc > 3 ? std::atoi(argv[3]) : 0;
  const std::int64_t only_length = argc > 4 ? std::atoi(argv[4]) : 0;
  omp_set_num_threads(threads);
  std::printf("%d threads, %s, window %ld\n", threads, forge::name_of(forge::host_isa()), static_cast<long>(window));
  std::printf("GFLOP/s\n%-6s %6s %4s %8s %10s %6s %10s %6s\n", "type", "T", "D", "sgemm", "forward", "ratio",
              "backward", "ratio");
  for (const std::int64_t length : {256, 512, 1024, 4096}) {
    for (const std::int64_t D : {32, 64, 128}) {
      if ((only && D != only) || (only_length && length != only_length)) continue;
      forge::report<float>("fp32", length, D, window, threads);
      forge::report<forge::bf16>("bf16", length, D, window, threads);
      if (D == 64) forge::report<double>("fp64", length, D, window, threads);
    }
  }
  return 0;
}
