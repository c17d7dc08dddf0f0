#include "core/types.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace forge {
namespace {

float from_bits(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// The nearer of the two neighbours, the even one of a tie, by its definition in double.
std::uint16_t nearest_even(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const auto below = static_cast<std::uint16_t>(bits >> 16);
  const auto value_of = [](std::uint32_t upper) {
    // The neighbour above the largest number is 2^128 for the comparison.
    return (upper & 0x7fff) == 0x7f80 ? std::ldexp((upper & 0x8000) ? -1.0 : 1.0, 128)
                                      : static_cast<double>(from_bits(upper << 16));
  };
  const double down = std::abs(static_cast<double>(x) - value_of(below));
  const double up = std::abs(value_of(below + 1u) - static_cast<double>(x));
  if (down == up) return static_cast<std::uint16_t>(below + (below & 1));
  return static_cast<std::uint16_t>(down < up ? below : below + 1);
}

TEST(Bf16, rounds_to_nearest_even) {
  for (std::uint64_t pattern = 0; pattern < (std::uint64_t{1} << 32); pattern += 4093) {
    const float x = from_bits(static_cast<std::uint32_t>(pattern));
    if (!std::isfinite(x)) continue;
    ASSERT_EQ(bf16(x).bits, nearest_even(x)) << x;
  }
  EXPECT_EQ(bf16(from_bits(0x3f808000)).bits, 0x3f80);  // ties
  EXPECT_EQ(bf16(from_bits(0x3f818000)).bits, 0x3f82);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(Bf16, every_value_survives) {
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    const float x = from_bits(upper << 16);
    if (std::isnan(x))
      EXPECT_TRUE(std::isnan(static_cast<float>(bf16(x))));
    else
      EXPECT_EQ(bf16(x).bits, upper);
  }
}

TEST(Bf16, nan_stays_nan) {
  for (const std::uint32_t bits : {0x7f800001u, 0x7f80ffffu, 0x7fffffffu, 0xff800001u, 0xffffffffu})
    EXPECT_TRUE(std::isnan(static_cast<float>(bf16(from_bits(bits))))) << bits;
  EXPECT_TRUE(std::isinf(static_cast<double>(bf16(std::numeric_limits<double>::infinity()))));
}

TEST(DType, sizes_and_names) {
  EXPECT_EQ(size_of(dtype_of<double>), sizeof(double));
  EXPECT_EQ(size_of(dtype_of<float>), sizeof(float));
  EXPECT_EQ(size_of(dtype_of<bf16>), sizeof(bf16));
  EXPECT_EQ(size_of(dtype_of<std::uint16_t>), 2u);
  EXPECT_EQ(size_of(dtype_of<std::int64_t>), 8u);
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_TRUE((std::is_same_v<acc_t<bf16>, float> && std::is_same_v<acc_t<double>, double>));
  EXPECT_TRUE(bf16_precision.has_compute_copy());
  EXPECT_FALSE(fp32_precision.has_compute_copy());
}

}  // namespace
}  // namespace forge
