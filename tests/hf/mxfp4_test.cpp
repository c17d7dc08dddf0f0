#include "hf/mxfp4.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "../config/support.hpp"

namespace forge {
namespace {

using test::Directory;
using test::expect_bad_input;

constexpr float codes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

// Two experts of three rows of 64 columns.
struct Coded {
  const Directory directory;
  std::vector<std::uint8_t> blocks, scales;

  Coded() : blocks(2 * 3 * 2 * 16), scales(2 * 3 * 2) {
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::uint8_t>(37 * i + 11);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(i == 4 ? 0 : 120 + i);
  }
  TensorFiles files() const {
    const std::string path = directory.path() + "/model.safetensors";
    SafetensorsWriter writer(path, {{"up_blocks", "U8", {2, 3, 2, 16}}, {"up_scales", "U8", {2, 3, 2}}}, {});
    writer.write("up_blocks", std::as_bytes(std::span(blocks)));
    writer.write("up_scales", std::as_bytes(std::span(scales)));
    writer.finish();
    return TensorFiles::open(directory.path());
  }
  float value(std::int64_t row, std::int64_t column) const {
    const unsigned byte = blocks[to_size(row * 32 + column / 2)];
    return std::ldexp(codes[column % 2 == 0 ? byte % 16 : byte / 16],
                      static_cast<int>(scales[to_size(row * 2 + column / 32)]) - 127);
  }
};

TEST(Mxfp4, LowCodeComesFirst) {
  const Coded coded;
  const TensorFiles files = coded.files();
  const TensorInfo &blocks = *files.find("up_blocks"), &scales = *files.find("up_scales");
  EXPECT_EQ(mxfp4_problem(files, blocks, &scales, {2, 3, 64}), "");
  for (const auto& [first, step, rows] : {std::array{0, 1, 6}, {1, 2, 2}, {3, 1, 1}, {1, 3, 2}}) {
    std::vector<double> values(to_size(rows * 64));
    std::vector<float> narrow(values.size());
    read_mxfp4<double>(files, blocks, scales, 64, first, step, values);
    read_mxfp4<float>(files, blocks, scales, 64, first, step, narrow);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < 64; ++j) {
        EXPECT_EQ(values[to_size(r * 64 + j)], coded.value(first + r * step, j)) << r << ", " << j;
        EXPECT_EQ(narrow[to_size(r * 64 + j)], coded.value(first + r * step, j)) << r << ", " << j;
      }
  }
}

TEST(Mxfp4, RefusesOtherTensors) {
  Coded coded;
  coded.scales[5] = 255;
  const TensorFiles files = coded.files();
  const TensorInfo &blocks = *files.find("up_blocks"), &scales = *files.find("up_scales");
  EXPECT_NE(mxfp4_problem(files, blocks, &scales, {2, 3, 48}).find("legal: a multiple of 32"), std::string::npos);
  EXPECT_NE(mxfp4_problem(files, blocks, &scales, {2, 4, 64}).find("config.json asks for U8 [2, 4, 2, 16]"),
            std::string::npos);
  EXPECT_NE(mxfp4_problem(files, blocks, nullptr, {2, 3, 64}).find("has no scales [2, 3, 2]"), std::string::npos);
  EXPECT_NE(mxfp4_problem(files, blocks, &blocks, {2, 3, 64}).find("legal: U8 [2, 3, 2]"), std::string::npos);
  std::vector<float> row(64);
  expect_bad_input([&] { read_mxfp4<float>(files, blocks, scales, 64, 2, 1, std::span<float>(row)); },
                   {"up_scales has 255, which is no number; legal: 0 to 254"});
}

}  // namespace
}  // namespace forge
