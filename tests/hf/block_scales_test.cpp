#include "hf/fp8/block_scales.hpp"

#include <cmath>
#include <limits>

#include "../config/support.hpp"

namespace forge {
namespace {

using test::Directory;
using test::expect_bad_input;

constexpr std::int64_t rows = 300, columns = 700;  // more than one chunk of a read; blocks at the ends are padded

// A file with a weight of codes 0 … 126 in turn, their negatives, and a scale of its own for each block.
TensorFiles sample(const Directory& directory) {
  const std::vector<std::int64_t> shape = scale_shape({rows, columns});
  std::vector<std::uint8_t> codes;
  for (std::int64_t i = 0; i < rows * columns; ++i)
    codes.push_back(static_cast<std::uint8_t>(i % 127 | (i % 2 ? 0x80 : 0)));
  std::vector<float> scales;
  for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i) scales.push_back(1 + 0.37f * static_cast<float>(i));
  const std::string path = directory.path() + "/model.safetensors";
  SafetensorsWriter writer(path, {{"w", "F8_E4M3", {rows, columns}}, {"w_scale_inv", "F32", shape}}, {});
  writer.write("w", std::as_bytes(std::span(codes)));
  writer.write("w_scale_inv", std::as_bytes(std::span(scales)));
  writer.finish();
  return TensorFiles::open(path);
}

double value_at(std::int64_t element) {
  const std::int64_t code = element % 127, exponent = code / 8, mantissa = code % 8;
  const double number = exponent == 0 ? static_cast<double>(mantissa) / 512
                                      : (1 + static_cast<double>(mantissa) / 8) * std::exp2(exponent - 7);
  const std::int64_t block = element / columns / 128 * 6 + element % columns / 128;
  return number * static_cast<double>(1 + 0.37f * static_cast<float>(block)) * (element % 2 ? -1 : 1);
}

TEST(BlockScales, AnyRangeOfAWeightHasItsBlocksScales) {
  const Directory directory;
  const TensorFiles files = sample(directory);
  const TensorInfo& weight = *files.find("w");
  ASSERT_EQ(weight_problem(files, weight, true), "");
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, rows * columns},
                                     {127 * columns + 600, 2 * columns},
                                     {130 * columns + 127, 2},
                                     {255 * columns + 690, 20},
                                     {299 * columns + 699, 1},
                                     {5, 0}}) {
    std::vector<double> exact(static_cast<std::size_t>(count));
    std::vector<float> rounded(exact.size());
    read_weight(files, weight, std::span(exact), first);
    read_weight(files, weight, std::span(rounded), first);
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(exact[static_cast<std::size_t>(i)], value_at(first + i)) << first << " + " << i;
      ASSERT_EQ(rounded[static_cast<std::size_t>(i)], static_cast<float>(value_at(first + i))) << first << " + " << i;
    }
  }
  std::vector<float> beyond(2);
  expect_bad_input([&] { read_weight(files, weight, std::span(beyond), rows * columns - 1); }, {"209999", "of its"});
}

TEST(BlockScales, ScalesAreLargestPowersOfTwo) {
  std::vector<float> values(130, 0.f);
  values[0] = 448;
  values[1] = -1;
  values[128] = 0x1p-20f;
  const BlockScaled scaled = block_scaled("w", values, 1, 130);
  EXPECT_EQ(scaled.scale_inv, (std::vector<float>{1, 0x1p-28f}));
  EXPECT_EQ(scaled.codes[0], 0x7e);
  EXPECT_EQ(scaled.codes[1], 0xb8);
  EXPECT_EQ(scaled.codes[128], 0x78);  // 256
  EXPECT_EQ(block_scaled("w", std::vector<float>(4, 0.f), 2, 2).scale_inv, std::vector<float>{1});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    values[129] = bad;
    expect_bad_input([&] { block_scaled("w", values, 1, 130); }, {"tensor w holds NaN or Inf", "fp32 | bf16"});
  }
}

}  // namespace
}  // namespace forge
