#include "device/parallel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "device/device_memory.hpp"

namespace forge {
namespace {

// Device memory of n values, zero at first.
template <class T>
struct Memory {
  std::int64_t n;
  Buffer buffer;
  Stream& stream;

  Memory(std::int64_t count, Stream& s) : n(count), buffer(static_cast<std::size_t>(count) * sizeof(T)), stream(s) {
    fill_zero(s, buffer.data(), buffer.bytes());
  }
  T* data() const { return reinterpret_cast<T*>(buffer.data()); }
  std::vector<T> read() const {
    std::vector<T> v(static_cast<std::size_t>(n));
    copy_to_host(stream, v.data(), buffer.data(), buffer.bytes());
    stream.synchronize();
    return v;
  }
};

}  // namespace

// nvcc wants extended lambdas in functions with a name of their own, not in a test's private member function.
void count_for(Stream& s, std::int64_t n, int* seen) {
  parallel_for(s, n, [=] FORGE_LAMBDA(std::int64_t i) { seen[i] += static_cast<int>(i % 1000) + 1; });
}
void count_rows(Stream& s, std::int64_t rows, std::int64_t n, int* seen, int* leaders) {
  parallel_rows(s, rows, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.each(n, [=](std::int64_t j) { seen[r * n + j] += 1; });
    if (team.leads()) leaders[r] += 1;
  });
}
// seen(rows, parts · m) += the mark of each part.
void count_parts(Stream& s, std::int64_t rows, std::int64_t parts, std::int64_t m, int* seen) {
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t part, Team team) {
    const int mark = static_cast<int>(100 * r + part);
    team.map(
        m, [=](int& x) { x += mark; }, in_place(seen + (r * parts + part) * m));
  };
  parallel_rows(s, rows, parts, row_width<int>(m), body);
}
// For each row: sum, maximum, and per column the sum over rows [0, row).
void reduce_rows(Stream& s, std::int64_t rows, std::int64_t n, const double* x, double* sums, double* maxima,
                 double* prefixes) {
  parallel_rows(s, rows, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const double sum = team.template sum<double>(n, [=](std::int64_t j) { return x[r * n + j]; });
    const double most = team.template max<double>(n, [=](std::int64_t j) { return x[r * n + j]; });
    team.template column_sums<double>(
        n, 0, r, column_lines<double>(n % 2 == 0, [=](std::int64_t q) { return column_line(x + q * n); }),
        [=](NoScale, const double& x_j) { return x_j; }, [=](const double& value, double& to) { to = value; },
        prefixes + r * n);
    if (team.leads()) {
      sums[r] = sum;
      maxima[r] = most;
    }
  });
}

namespace {

template <class Check>
void on_each_stream(const Check& check) {
  for (const int threads : {1, 2, 3, 5})
    for (const auto kind : {Stream::Kind::Inline, Stream::Kind::Worker}) {
      SCOPED_TRACE(threads);
      Stream s(threads, kind);
      check(s);
    }
}

TEST(ParallelFor, comes_to_every_index_once) {
  on_each_stream([](Stream& s) {
    for (const std::int64_t n : {0, 1, 17, 4096, 4097, 30001}) {
      Memory<int> seen(n, s);
      count_for(s, n, seen.data());
      const auto v = seen.read();
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(v[static_cast<std::size_t>(i)], i % 1000 + 1);
    }
  });
}

TEST(ParallelRows, comes_to_every_row_and_column_once) {
  on_each_stream([](Stream& s) {
    for (const std::int64_t rows : {0, 1, 2, 7, 33})
      for (const std::int64_t n : {0, 1, 17, 300}) {
        Memory<int> seen(rows * n, s), leaders(rows, s);
        count_rows(s, rows, n, seen.data(), leaders.data());
        for (const int count : seen.read()) ASSERT_EQ(count, 1);
        for (const int count : leaders.read()) ASSERT_EQ(count, 1);
      }
  });
}

// sums[k] = Σ (k + 1) j over j < n: one sum again and again, whose parts all stand in the same memory of the team.
void sum_again(Stream& s, std::int64_t times, std::int64_t n, double* sums) {
  parallel_rows(s, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    for (std::int64_t k = 0; k < times; ++k) {
      const double sum = team.sum<double>(n, [=](std::int64_t j) { return static_cast<double>((k + 1) * j); });
      if (team.leads()) sums[k] = sum;
    }
  });
}

TEST(Team, sums_follow_each_other) {
  on_each_stream([](Stream& s) {
    Memory<double> sums(20, s);
    sum_again(s, 20, 300, sums.data());
    const auto v = sums.read();
    for (std::size_t k = 0; k < v.size(); ++k) EXPECT_EQ(v[k], static_cast<double>(k + 1) * 300 * 299 / 2);
  });
}

TEST(ParallelRows, comes_to_every_part_once) {
  on_each_stream([](Stream& s) {
    for (const std::int64_t m : {1, 4, 19, 64, 300, 3000}) {
      Memory<int> seen(7 * 5 * m, s);
      count_parts(s, 7, 5, m, seen.data());
      const auto v = seen.read();
      for (std::int64_t i = 0; i < 7 * 5 * m; ++i)
        ASSERT_EQ(v[static_cast<std::size_t>(i)], 100 * (i / m / 5) + i / m % 5) << i << " of " << m;
    }
  });
}

// Small integers: every order of additions is exact.
TEST(Team, sums_maxima_and_column_sums) {
  on_each_stream([](Stream& s) {
    for (const std::int64_t n : {1, 31, 300, 1000}) {
      const std::int64_t rows = 9;
      std::vector<double> x;
      for (std::int64_t i = 0; i < rows * n; ++i) x.push_back(static_cast<double>((i * 7919) % 1009 - 504));
      Memory<double> in(rows * n, s), sums(rows, s), maxima(rows, s), prefixes(rows * n, s);
      copy_to_device(s, in.data(), x.data(), x.size() * sizeof(double));
      reduce_rows(s, rows, n, in.data(), sums.data(), maxima.data(), prefixes.data());
      const auto got_sums = sums.read(), got_maxima = maxima.read(), got_prefixes = prefixes.read();
      std::vector<double> running(static_cast<std::size_t>(n), 0.0);
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0, most = -INFINITY;
        for (std::int64_t j = 0; j < n; ++j) {
          const double value = x[static_cast<std::size_t>(r * n + j)];
          ASSERT_EQ(got_prefixes[static_cast<std::size_t>(r * n + j)], running[static_cast<std::size_t>(j)]);
          running[static_cast<std::size_t>(j)] += value;
          sum += value;
          most = std::max(most, value);
        }
        EXPECT_EQ(got_sums[static_cast<std::size_t>(r)], sum);
        EXPECT_EQ(got_maxima[static_cast<std::size_t>(r)], most);
      }
    }
  });
}

TEST(Team, maximum_of_nan_and_of_nothing) {
  Stream s;
  for (const std::int64_t where : {0, 1, 31, 32, 299}) {
    std::vector<double> x(300, 1.0);
    x[static_cast<std::size_t>(where)] = std::nan("");
    Memory<double> in(300, s), sums(1, s), maxima(1, s), prefixes(300, s);
    copy_to_device(s, in.data(), x.data(), x.size() * sizeof(double));
    reduce_rows(s, 1, 300, in.data(), sums.data(), maxima.data(), prefixes.data());
    EXPECT_TRUE(std::isnan(maxima.read()[0])) << where;
    EXPECT_TRUE(std::isnan(sums.read()[0])) << where;
  }
  Memory<double> in(1, s), sums(1, s), maxima(1, s), prefixes(1, s);
  reduce_rows(s, 1, 0, in.data(), sums.data(), maxima.data(), prefixes.data());
  EXPECT_EQ(maxima.read()[0], -INFINITY);
  EXPECT_EQ(sums.read()[0], 0);
}

}  // namespace
}  // namespace forge
