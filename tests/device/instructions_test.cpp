#include "device/instructions.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "../device_values.hpp"
#include "core/normal.hpp"
#include "core/types.hpp"

// Instructions against plain loops, on a GPU and on the emulated one. Matrices come as plain arrays; the kernels put
// their values into the registers that PTX names.

namespace forge {
namespace {

using test::DeviceArray;

// One warp: registers of lane l are words[l * count ...).
__global__ void bf16_kernel(const std::uint16_t* a, const std::uint16_t* b, float* c) {
  const int l = threadIdx.x, g = l / 4, t = l % 4;
  const auto pair = [](const std::uint16_t* p, int stride) {
    return static_cast<std::uint32_t>(p[0]) | static_cast<std::uint32_t>(p[stride]) << 16;
  };
  std::uint32_t ra[4], rb[2];
  for (int r = 0; r < 4; ++r) ra[r] = pair(a + (g + r % 2 * 8) * 16 + 2 * t + r / 2 * 8, 1);
  for (int r = 0; r < 2; ++r) rb[r] = pair(b + (2 * t + r * 8) * 8 + g, 8);
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  multiply_add_bf16(d, ra, rb);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

__global__ void tf32_kernel(const float* a, const float* b, float* c) {
  const int l = threadIdx.x, g = l / 4, t = l % 4;
  std::uint32_t ra[4], rb[2];
  for (int r = 0; r < 4; ++r) memcpy(&ra[r], a + (g + r % 2 * 8) * 8 + t + r / 2 * 4, 4);
  for (int r = 0; r < 2; ++r) memcpy(&rb[r], b + (t + r * 4) * 8 + g, 4);
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  multiply_add_tf32(d, ra, rb);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

__global__ void fp64_kernel(const double* a, const double* b, double* c) {
  const int l = threadIdx.x, g = l / 4, t = l % 4;
  double d[2] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1]};
  multiply_add_fp64(d, a[g * 4 + t], b[t * 8 + g]);
  for (int i = 0; i < 2; ++i) c[g * 8 + 2 * t + i] = d[i];
}

// Two groups of copies, both matrices through shared memory, and back by ldmatrix: out[transposed][l][matrix].
__global__ void load_kernel(const std::uint16_t* in, std::uint32_t* out) {
  FORGE_SHARED(uint4, memory, 64);
  auto* values = reinterpret_cast<std::uint16_t*>(memory);  // (32, 8), and again
  const int l = threadIdx.x;
  copy_async_16(values + l * 8, in + l * 8);
  copy_async_commit();
  copy_async_16(values + 256 + l * 8, in + 256 + l * 8, l % 2 == 0 ? 16 : 6);
  copy_async_commit();
  copy_async_wait<1>();
  __syncthreads();
  std::uint32_t r[4];
  load_matrices(r, values + l * 8);
  for (int m = 0; m < 4; ++m) out[l * 4 + m] = r[m];
  copy_async_wait<0>();
  __syncthreads();
  load_matrices_transposed(r, values + 256 + l * 8);
  for (int m = 0; m < 4; ++m) out[128 + l * 4 + m] = r[m];
}

__global__ void numbers_kernel(const float* x, std::uint32_t* pairs, float* powers) {
  const int l = threadIdx.x;
  pairs[l] = pack_bf16(x[2 * l], x[2 * l + 1]);
  powers[l] = exp2_approximate(x[l]);
}

// c(m, n) + a(m, k) b(k, n), and the sum of magnitudes.
void expect_product(int m, int n, int k, const std::function<double(int, int)>& a,
                    const std::function<double(int, int)>& b, const std::function<double(int, int)>& c,
                    const std::function<double(int, int)>& got, double roundoff) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = c(i, j), magnitude = std::abs(sum);
      for (int l = 0; l < k; ++l) {
        sum += a(i, l) * b(l, j);
        magnitude += std::abs(a(i, l) * b(l, j));
      }
      EXPECT_LE(std::abs(got(i, j) - sum), (k + 2) * roundoff * magnitude) << i << ", " << j;
    }
}

template <class T>
std::vector<T> draw(std::size_t n, std::uint64_t key) {
  std::vector<T> values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(static_cast<T>(normal(key, i)));
  return values;
}

template <class T>
auto at(const std::vector<T>& values, int columns) {
  return [&values, columns](int i, int j) {
    return static_cast<double>(values[static_cast<std::size_t>(i * columns + j)]);
  };
}

TEST(Instructions, ProductsOfBf16) {
  Stream stream;
  const auto a = draw<bf16>(256, 1), b = draw<bf16>(128, 2);
  const auto c = draw<float>(128, 3);
  const DeviceArray<bf16, 1> da(stream, {{256}}, a), db(stream, {{128}}, b);
  const DeviceArray<float, 1> dc(stream, {{128}}, c);
  launch(stream, "bf16", bf16_kernel, {1, 32}, reinterpret_cast<const std::uint16_t*>(da.view().data),
         reinterpret_cast<const std::uint16_t*>(db.view().data), dc.view().data);
  const auto got = dc.get();
  expect_product(16, 8, 16, at(a, 16), at(b, 8), at(c, 8), at(got, 8), 0x1p-23);
}

TEST(Instructions, ProductsOfTf32) {
  Stream stream;
  auto a = draw<float>(128, 1), b = draw<float>(64, 2);
  const auto c = draw<float>(128, 3);
  const DeviceArray<float, 1> da(stream, {{128}}, a), db(stream, {{64}}, b), dc(stream, {{128}}, c);
  launch(stream, "tf32", tf32_kernel, {1, 32}, da.view().data, db.view().data, dc.view().data);
  for (auto* values : {&a, &b})
    for (float& x : *values) {
      std::uint32_t bits;
      std::memcpy(&bits, &x, 4);
      bits &= 0xffffe000u;
      std::memcpy(&x, &bits, 4);
    }
  const auto got = dc.get();
  expect_product(16, 8, 8, at(a, 8), at(b, 8), at(c, 8), at(got, 8), 0x1p-23);
}

TEST(Instructions, ProductsOfFp64) {
  Stream stream;
  const auto a = draw<double>(32, 1), b = draw<double>(32, 2), c = draw<double>(64, 3);
  const DeviceArray<double, 1> da(stream, {{32}}, a), db(stream, {{32}}, b), dc(stream, {{64}}, c);
  launch(stream, "fp64", fp64_kernel, {1, 32}, da.view().data, db.view().data, dc.view().data);
  const auto got = dc.get();
  expect_product(8, 8, 4, at(a, 4), at(b, 8), at(c, 8), at(got, 8), 0x1p-53);
}

TEST(Instructions, PairsOfBf16AndPowersOfTwo) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Stream stream;
  auto x = draw<float>(64, 4);
  for (float& v : x) v *= 20;
  const std::vector<float> special{0,    -0.0f, 1,    -1,          infinity,    -infinity, std::nanf(""),
                                   -126, -127,  -200, 1 + 0x1p-8f, 0x1p-8f + 3, 127.5f,    1 + 0x1.8p-7f};
  std::copy(special.begin(), special.end(), x.begin());
  const DeviceArray<float, 1> from(stream, {{64}}, x), powers(stream, {{32}});
  const DeviceArray<std::uint32_t, 1> pairs(stream, {{32}});
  launch(stream, "numbers", numbers_kernel, {1, 32}, from.view().data, pairs.view().data, powers.view().data);
  const auto got = pairs.get();
  const auto power = powers.get();
  for (std::size_t i = 0; i < 64; ++i) {
    bf16 half;
    half.bits = static_cast<std::uint16_t>(got[i / 2] >> (16 * (i % 2)));
    if (std::isnan(x[i]))
      EXPECT_TRUE(std::isnan(static_cast<float>(half)));
    else
      EXPECT_EQ(half.bits, bf16(x[i]).bits) << x[i];
  }
  for (std::size_t i = 0; i < 32; ++i) {
    const double want = std::exp2(static_cast<double>(x[i]));
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(power[i]));
    else if (std::isinf(want) || want < 0x1p-126)
      EXPECT_EQ(power[i], std::isinf(want) ? infinity : 0.0f) << x[i];
    else
      EXPECT_LE(std::abs(static_cast<double>(power[i]) - want), 0x1p-22 * want) << x[i];
  }
  EXPECT_EQ(power[0], 1);
}

TEST(Instructions, CopiesAndMatricesOfSharedMemory) {
  Stream stream;
  std::vector<std::uint16_t> in;
  for (int i = 0; i < 512; ++i) in.push_back(static_cast<std::uint16_t>(mix(5, static_cast<std::uint64_t>(i))));
  const DeviceArray<std::uint16_t, 1> from(stream, {{512}}, in);
  const DeviceArray<std::uint32_t, 1> to(stream, {{256}});
  launch(stream, "load", load_kernel, {1, 32}, from.view().data, to.view().data);
  const auto got = to.get();
  const auto value = [&](int half, int m, int row, int column) -> std::uint32_t {
    const int line = 8 * m + row;
    if (half == 1 && line % 2 == 1 && column >= 3) return 0;  // behind what was read
    return in[static_cast<std::size_t>(half * 256 + line * 8 + column)];
  };
  for (int l = 0; l < 32; ++l)
    for (int m = 0; m < 4; ++m) {
      const int g = l / 4, t = l % 4;
      const auto at = static_cast<std::size_t>(l * 4 + m);
      EXPECT_EQ(got[at], value(0, m, g, 2 * t) | value(0, m, g, 2 * t + 1) << 16) << l << ", " << m;
      EXPECT_EQ(got[128 + at], value(1, m, 2 * t, g) | value(1, m, 2 * t + 1, g) << 16) << l << ", " << m;
    }
}

}  // namespace
}  // namespace forge
