#include <gtest/gtest.h>

#include "sample.hpp"

namespace forge::test {
namespace {

// Every element of a part lands where the target has it, and nothing else changes.
TEST(TensorParts, CopyAnyPartBetweenAnyBoxes) {
  const Extents shape{5, 4, 6};
  const Box whole{{0, 0, 0}, shape};
  const auto drawn_box = [&](std::uint64_t key) {
    Box box;
    for (std::size_t d = 0; d < 3; ++d) {
      const auto n = static_cast<std::uint64_t>(shape[d]);
      const std::uint64_t begin = mix(key, 2 * d) % n, extent = 1 + mix(key, 2 * d + 1) % (n - begin);
      box.offset.push_back(static_cast<std::int64_t>(begin));
      box.extent.push_back(static_cast<std::int64_t>(extent));
    }
    return box;
  };
  std::vector<std::int32_t> values(static_cast<std::size_t>(whole.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i + 1);
  int copied = 0;
  for (std::uint64_t key = 0; key < 2000; ++key) {
    const Box from = drawn_box(mix(1, key)), to = drawn_box(mix(2, key)), part = intersection(from, to);
    std::vector<std::int32_t> source(static_cast<std::size_t>(from.size())),
        target(static_cast<std::size_t>(to.size()));
    const auto bytes = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
    copy_part(from, whole, bytes(values), from, bytes(source), 4);
    copy_part(part, from, bytes(source), to, bytes(target), 4);
    std::size_t at = 0;
    for (std::int64_t i = 0; i < to.extent[0]; ++i)
      for (std::int64_t j = 0; j < to.extent[1]; ++j)
        for (std::int64_t k = 0; k < to.extent[2]; ++k, ++at) {
          const Extents index{to.offset[0] + i, to.offset[1] + j, to.offset[2] + k};
          const bool inside = part.size() > 0 && part.contains(index);
          ASSERT_EQ(target[at], inside ? values[static_cast<std::size_t>(flat_index(shape, index))] : 0) << key;
          copied += inside;
        }
  }
  EXPECT_GT(copied, 1000);
}

TEST(TensorParts, StripsCoverABox) {
  const Box box{{2, 3}, {4, 10}};
  const auto strips = strips_of(box, 4);
  ASSERT_EQ(strips.size(), 4u);
  EXPECT_EQ(strips[0], (Box{{2, 3}, {4, 1}}));
  EXPECT_EQ(strips[1], (Box{{2, 4}, {4, 4}}));
  EXPECT_EQ(strips[3], (Box{{2, 12}, {4, 1}}));
  EXPECT_EQ(strips_of(box, 0), std::vector<Box>{box});
}

TEST(TensorParts, BoxesWithinABoxAreOfTheTensor) {
  EXPECT_EQ(boxes_within({{2, 3}, {4, 10}}, {10, 30}), (std::vector<Box>{{{3, 3}, {2, 10}}}));
  EXPECT_EQ(boxes_within({{2, 3}, {4, 10}}, {5, 12}), (std::vector<Box>{{{2, 8}, {1, 5}}, {{3, 3}, {1, 2}}}));
}

// Chunks end where layouts cut a whole matrix: at eighths of its rows, or at its strips.
TEST(Chunks, EndWhereLayoutsCut) {
  const ShardOptions options;
  const std::int64_t rows = 1408, columns = 512, expert = 256 * 512;
  const std::vector<StoredPiece> matrix{{{{0, 0}, {rows, columns}}, 0}};
  std::int64_t chunk = chunk_elements(matrix, 4, false, options);
  EXPECT_EQ(rows / 8 * columns % chunk, 0);
  EXPECT_LE(static_cast<std::size_t>(chunk) * 4, static_cast<std::size_t>(rows * columns) * 4 / options.parts);
  std::vector<StoredPiece> experts, strips;
  for (std::int64_t e = 0; e < 6; ++e) experts.push_back({{{e, 0, 0}, {1, 256, 512}}, e * expert});
  chunk = chunk_elements(experts, 4, false, options);
  EXPECT_EQ(expert / 8 % chunk, 0);
  for (std::int64_t i = 0; i < 8; ++i) strips.push_back({{{0, i * 64}, {rows, 64}}, i * rows * 64});
  chunk = chunk_elements(strips, 4, true, options);
  EXPECT_EQ(rows * 64 % chunk, 0);
}

// Any part of a tensor: chunks within the limits, and hardly any padding.
TEST(Chunks, KeepTheLimits) {
  for (const std::size_t size : {2, 4, 8})
    for (const std::int64_t elements : {1, 7, 1024, 1031, 99991, 7654321, 300000001}) {
      const std::vector<StoredPiece> piece{{{{5}, {elements}}, 0}};
      const std::int64_t chunk = chunk_elements(piece, size, false, {});
      const auto bytes = static_cast<std::size_t>(chunk) * size;
      ASSERT_GE(chunk, 1);
      EXPECT_LE(chunk, elements);
      EXPECT_LE(bytes, ShardOptions().most_bytes);
      if (chunk < elements) {
        EXPECT_GE(2 * bytes, ShardOptions().least_bytes);
      }
      const std::int64_t padding = (elements + chunk - 1) / chunk * chunk - elements;
      EXPECT_LE(padding * 16, elements);
    }
}

// A manifest's rows fit one rank, whatever a state's bytes: chunks outgrow 1 MiB where they must.
TEST(Chunks, AreFewOfALargeState) {
  const std::size_t gib = std::size_t{1} << 30;
  for (const std::size_t state : {gib, 1024 * gib, 16 * 1024 * gib, 100 * 1024 * gib}) {
    const ShardOptions options = few_chunks({}, state);
    const std::int64_t rows = 1 << 20, columns = static_cast<std::int64_t>(state / 4) >> 20;
    // As one tensor, and as 4,096 of them.
    for (const std::int64_t tensors : {1, 4096}) {
      const std::vector<StoredPiece> piece{{{{0, 0}, {rows / tensors, columns}}, 0}};
      const std::int64_t chunk = chunk_elements(piece, 4, false, options), elements = rows / tensors * columns;
      EXPECT_LE((elements + chunk - 1) / chunk * tensors, std::int64_t{2} << 24) << state << " bytes";
    }
    EXPECT_EQ(options.most_bytes > ShardOptions().most_bytes, state > 16 * 1024 * gib);
  }
}

}  // namespace
}  // namespace forge::test
