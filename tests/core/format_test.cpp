#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/bytes.hpp"
#include "core/normal.hpp"

namespace forge {
namespace {

TEST(Bytes, alignment) {
  EXPECT_EQ(align_up(0), 0u);
  EXPECT_EQ(align_up(1), 256u);
  EXPECT_EQ(align_up(256), 256u);
  EXPECT_EQ(align_up(257), 512u);
}

TEST(Format, printf) {
  EXPECT_EQ(formatted("%d of %5.2f %%", 3, 1.5), "3 of  1.50 %");
  const std::string longer(5000, 'x');
  EXPECT_EQ(formatted("<%s>", longer.c_str()), "<" + longer + ">");
}

TEST(Format, bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1610612736), "1.50 GiB");
  EXPECT_EQ(format_bytes(std::uint64_t{80} << 30), "80.00 GiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "16384.00 PiB");
}

TEST(Format, counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(812), "812");
  EXPECT_EQ(format_count(4700000), "4.70 M");
  EXPECT_EQ(format_count(1.2e9), "1.20 B");
  EXPECT_EQ(format_count(3.4e15), "3400.00 T");
  EXPECT_EQ(format_flops(1.2e9), "1.20 G");
  EXPECT_EQ(format_flops(3.4e15), "3.40 P");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(2, "batch", "batches"), "2 batches");
}

TEST(Format, seconds) {
  EXPECT_EQ(format_seconds(12.5), "12.5s");
  EXPECT_EQ(format_seconds(59.94), "59.9s");
  EXPECT_EQ(format_seconds(59.96), "1m00s");
  EXPECT_EQ(format_seconds(200), "3m20s");
  EXPECT_EQ(format_seconds(3599.4), "59m59s");
  EXPECT_EQ(format_seconds(3599.6), "1h00m");
  EXPECT_EQ(format_seconds(3720), "1h02m");
  EXPECT_EQ(format_seconds(std::nan("")), "-");
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::infinity()), "-");
}

TEST(Format, exact_numbers_read_back) {
  EXPECT_EQ(format_exact(0.1), "0.1");
  EXPECT_EQ(format_exact(std::nan("")), "nan");
  EXPECT_EQ(format_exact(-std::numeric_limits<double>::infinity()), "-inf");
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const double x = std::ldexp(normal(3, i), static_cast<int>(i % 600) - 300);
    EXPECT_EQ(std::strtod(format_exact(x).c_str(), nullptr), x);
  }
}

}  // namespace
}  // namespace forge
