#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/normal.hpp"
#include "core/types.hpp"
#include "core/view.hpp"
#include "device/device_memory.hpp"
#include "numbers.hpp"

// Arrays in device memory with their values in double, for tests of kernels.

namespace forge::reference {

using Values = std::vector<double>;

inline Values normal_values(std::int64_t n, std::uint64_t key, double scale = 1) {
  Values v(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    v[static_cast<std::size_t>(i)] = scale * normal(key, static_cast<std::uint64_t>(i));
  return v;
}

// Rows of columns with a gap behind each row. The gap holds a pattern that no kernel may write.
template <class T>
class Field {
 public:
  std::int64_t rows, columns, pitch;

  Field(std::int64_t r, std::int64_t c, std::int64_t gap = 0) : rows(r), columns(c), pitch(c + gap), memory_(bytes()) {
    write(Values(static_cast<std::size_t>(r * c), 0.0));
  }
  Field(std::int64_t r, std::int64_t c, const Values& v, std::int64_t gap = 0) : Field(r, c, gap) { write(v); }

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  View<T, 2> view() const { return View<T, 2>(data(), {{rows, columns}}, pitch); }
  View<T, 1> vector() const { return View<T, 1>(data(), {{rows * columns}}); }
  View<T, 3> heads(std::int64_t n) const { return View<T, 3>(data(), {{rows, n, columns / n}}, pitch); }

  void write(const Values& v) {
    std::vector<T> all(static_cast<std::size_t>(rows * pitch));
    if (all.empty()) return;
    std::memset(static_cast<void*>(all.data()), 0xA5, all.size() * sizeof(T));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        all[static_cast<std::size_t>(r * pitch + c)] = T(v[static_cast<std::size_t>(r * columns + c)]);
    Stream stream;
    copy_to_device(stream, memory_.data(), all.data(), all.size() * sizeof(T));
    stream.synchronize();
  }
  // The values as they stand, rounded to T, dense. Waits for all work of the device.
  Values read(Stream& stream) const {
    std::vector<T> all(static_cast<std::size_t>(rows * pitch));
    copy_to_host(stream, all.data(), memory_.data(), all.size() * sizeof(T));
    stream.synchronize();
    Values v;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c)
        v.push_back(static_cast<double>(all[static_cast<std::size_t>(r * pitch + c)]));
      for (std::int64_t c = columns; c < pitch; ++c) {
        unsigned char bytes[sizeof(T)];
        std::memcpy(bytes, &all[static_cast<std::size_t>(r * pitch + c)], sizeof(T));
        for (const unsigned char byte : bytes) EXPECT_EQ(byte, 0xA5) << "a kernel wrote behind row " << r;
      }
    }
    return v;
  }
  Values read() const {
    Stream stream;
    return read(stream);
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(std::max<std::int64_t>(1, rows * pitch)) * sizeof(T); }
  Buffer memory_;
};

template <class T>
Field<T> vector_of(const Values& v) {
  return Field<T>(1, static_cast<std::int64_t>(v.size()), v);
}

inline double dot(const Values& a, const Values& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}
inline double norm(const Values& a) {
  return std::sqrt(dot(a, a));
}

// Every element within the rounding that its reference allows. T: the type the kernel stores it in.
template <class T, class A>
void expect_close(const Values& actual, const std::vector<Tracked<A>>& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(std::isfinite(expected[i].e)) << what << ": no bound at " << i;
    ASSERT_LE(std::abs(actual[i] - expected[i].v), (tolerance<T>(expected[i])))
        << what << " at " << i << ": " << actual[i] << ", reference " << expected[i].v;
  }
}

// Bitwise equality, NaN included.
inline bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

// run(stream) gives the results of a kernel; every number of threads must give the same bits, a worker stream included.
template <class Run>
void expect_same_on_any_threads(const Run& run) {
  Stream one(1);
  const Values expected = run(one);
  for (const int threads : {2, 3, 7}) {
    Stream many(threads);
    EXPECT_TRUE(same_bits(expected, run(many))) << threads << " threads";
  }
  Stream worker(2, Stream::Kind::Worker);
  EXPECT_TRUE(same_bits(expected, run(worker))) << "worker stream";
}

inline void append(Values& to, const Values& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// <u, J v> and <Jᵀ u, v>: two sums of `terms` products each, whose factors carry errors of a few roundings of their own
// sums over `length` values.
inline void expect_adjoint(double u_jv, double jtu_v, double magnitude, std::int64_t length) {
  EXPECT_LE(std::abs(u_jv - jtu_v), 8 * static_cast<double>(length + 16) * roundoff<double> * magnitude)
      << u_jv << " and " << jtu_v;
}

}  // namespace forge::reference
