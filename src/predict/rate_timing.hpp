#pragma once

#include <cstdint>
#include <ctime>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/median.hpp"
#include "core/to_size.hpp"
#include "core/view.hpp"
#include "device/device_memory.hpp"
#include "device/random_values.hpp"
#include "device/stream.hpp"

namespace forge {

// Seconds by the clock, or, of a single thread, of its processor, which leaves other programs' time out.
inline double rate_clock(const Stream& stream) {
  timespec t{};
  clock_gettime(stream.threads() == 1 && !stream.native() ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Seconds of a call: the median of at least three, and of as many as fit 5 ms; the first is not counted.
template <class Work>
double seconds_of(Stream& stream, const Work& work) {
  std::vector<double> times;
  double spent = 0;
  work(0);
  stream.synchronize();
  for (int i = 1; i <= 200 && (i <= 3 || spent < 0.005); ++i) {
    const double start = rate_clock(stream);
    work(i);
    stream.synchronize();
    times.push_back(rate_clock(stream) - start);
    spent += times.back();
  }
  return median(std::move(times));
}

// Memory that lives as long as the measurement.
class Values {
 public:
  explicit Values(Stream& stream) : stream_(stream) {}

  template <class T, int N>
  View<T, N> take(const Array<std::int64_t, N>& shape) {
    std::int64_t n = 1;
    for (const std::int64_t e : shape) n *= e;
    buffers_.emplace_back(to_size(n) * sizeof(T));
    const View<T, N> view(reinterpret_cast<T*>(buffers_.back().data()), shape);
    if constexpr (std::is_integral_v<T>)
      fill_zero(stream_, view.data, buffers_.back().bytes());
    else
      fill_random(stream_, view, buffers_.size(), 0.05);
    stream_.synchronize();
    return view;
  }
  template <class T>
  View<T, 2> matrix(std::int64_t rows, std::int64_t width) {
    return take<T, 2>({{rows, width}});
  }
  template <class T>
  View<T, 1> list(std::int64_t n) {
    return take<T, 1>({{n}});
  }
  // 0, 1, …, period − 1, 0, …
  View<std::int32_t, 1> counting(std::int64_t n, std::int64_t period) {
    const auto view = list<std::int32_t>(n);
    std::vector<std::int32_t> values(to_size(n));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % period);
    copy_to_device(stream_, view.data, values.data(), values.size() * sizeof(std::int32_t));
    stream_.synchronize();
    return view;
  }

 private:
  Stream& stream_;
  std::vector<Buffer> buffers_;
};

}  // namespace forge
