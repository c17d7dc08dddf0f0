#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "core/view.hpp"
#include "device/device_memory.hpp"
#include "device/hold_stream.hpp"
#include "device/random_values.hpp"
#include "device/stream.hpp"
#include "kernels/gemm/gemm.hpp"

// Common parts of the benches of kernel_bench: device memory with random numbers, a clock, and a line of the result.

namespace forge::bench {

using std::int64_t;

// A kernel of so many blocks beside the measured ones, in a stream of its own, which moves bytes as a collective does:
// 20 GB/s a block, about the rate of a channel of NCCL over NVLink.
class WireKernel {
 public:
  WireKernel(int blocks, bool tiny) : blocks_(blocks), from_(piece(tiny)), to_(piece(tiny)) {
    for (const Buffer* buffer : {&from_, &to_}) fill_zero(stream_, buffer->data(), buffer->bytes());
  }
  void start(double seconds) {
    const auto bytes = static_cast<std::size_t>(20e9 * blocks_ * seconds);
    hold_stream(stream_, {blocks_, seconds, to_.data(), from_.data(), from_.bytes(), bytes});
    event_.record(stream_);
  }
  bool runs() const { return !event_.ready(); }
  void synchronize() { stream_.synchronize(); }

 private:
  // More than caches hold.
  static std::size_t piece(bool tiny) { return std::size_t{1} << (tiny ? 16 : 26); }

  int blocks_;
  Stream stream_{1, Stream::Kind::Worker};
  Buffer from_, to_;
  Event event_;
};

struct Bench {
  Stream& stream;
  Gemm& gemm;
  bool tiny;             // sizes for a processor: to see that every kernel runs, not how fast
  WireKernel* beside{};  // null: the kernels run alone

  // The size of a real step, or the tiny one.
  int64_t size(int64_t real, int64_t small) const { return tiny ? small : real; }
};

// Buffers on the device that live as long as this.
class Memory {
 public:
  explicit Memory(Stream& stream) : stream_(stream) {}

  // Normal numbers of deviation `scale`.
  template <class T, int N>
  View<T, N> random(Array<int64_t, N> extents, double scale = 1) {
    const View<T, N> view = uninitialised<T, N>(extents);
    fill_random(stream_, view, key_++, scale);
    return view;
  }
  template <class T>
  View<T, 1> values(const std::vector<T>& host) {
    const View<T, 1> view = uninitialised<T, 1>({{static_cast<int64_t>(host.size())}});
    copy_to_device(stream_, view.data, host.data(), host.size() * sizeof(T));
    stream_.synchronize();
    return view;
  }
  template <class T, int N>
  View<T, N> zeros(Array<int64_t, N> extents) {
    const View<T, N> view = uninitialised<T, N>(extents);
    fill_zero(stream_, view.data, static_cast<std::size_t>(view.size()) * sizeof(T));
    return view;
  }

 private:
  template <class T, int N>
  View<T, N> uninitialised(Array<int64_t, N> extents) {
    int64_t n = 1;
    for (const int64_t e : extents) n *= e;
    buffers_.emplace_back(static_cast<std::size_t>(n) * sizeof(T));
    return View<T, N>(reinterpret_cast<T*>(buffers_.back().data()), extents);
  }

  Stream& stream_;
  std::vector<Buffer> buffers_;
  std::uint64_t key_ = 1;
};

// Seconds of one call: the median of five batches of calls, each long enough for the host's clock, after two calls that
// choose algorithms and touch pages. The kernel beside them, which runs with the five alone, must outlast each.
template <class Work>
double seconds_of(const Bench& bench, const Work& work) {
  WireKernel* beside = nullptr;
  double once = 0;
  const auto batch = [&](int calls) {
    bench.stream.synchronize();
    if (beside) beside->start(2 * once * calls + 1e-3);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) work();
    bench.stream.synchronize();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (beside && !beside->runs() && !bench.tiny) std::fprintf(stderr, "the kernel beside ended before the others\n");
    if (beside) beside->synchronize();
    return passed.count() / calls;
  };
  batch(1);
  once = batch(1);
  beside = bench.beside;
  const int calls = static_cast<int>(std::clamp((bench.tiny ? 1e-3 : 0.02) / once, 1.0, 200.0));
  std::vector<double> times;
  for (int i = 0; i < (bench.tiny ? 1 : 5); ++i) times.push_back(batch(calls));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// A line of the result: group, kernel, sizes ("key=value" words), seconds, floating-point operations, least bytes that
// are read and written; 0 where such a rate says nothing.
inline void print_row(const char* group, const std::string& kernel, const std::string& sizes, double seconds,
                      double flop, double bytes) {
  std::printf("%s\t%s\t%s\t%.6e\t%.6e\t%.6e\n", group, kernel.c_str(), sizes.c_str(), seconds, flop, bytes);
  std::fflush(stdout);
}

inline std::string word(const char* key, int64_t value) {
  return std::string(key) + "=" + std::to_string(value);
}

void bench_products(const Bench& bench);
void bench_attention(const Bench& bench);
void bench_rows(const Bench& bench);
void bench_experts(const Bench& bench);
void bench_matrices(const Bench& bench);
void bench_quickstart(const Bench& bench);

}  // namespace forge::bench
