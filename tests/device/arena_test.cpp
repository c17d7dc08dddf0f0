#include "device/arena.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/bytes.hpp"
#include "core/error.hpp"

namespace forge {
namespace {

TEST(Arena, aligned_and_apart) {
  Arena arena(4096);
  auto* a = static_cast<std::byte*>(arena.allocate(1, Category::parameters));
  auto* b = static_cast<std::byte*>(arena.allocate(300, Category::gradients));
  auto* c = static_cast<std::byte*>(arena.allocate(0, Category::gradients));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % alignment_bytes, 0u);
  EXPECT_EQ(b - a, 256);
  EXPECT_EQ(c - b, 512);
  EXPECT_EQ(arena.live(), 768u);
}

TEST(Arena, frames_give_back_and_the_mark_stays) {
  Arena arena(1 << 20);
  arena.allocate(1000, Category::parameters);  // 1024
  {
    Frame outer(arena);
    arena.allocate(256, Category::activations);
    {
      Frame inner(arena);
      arena.allocate(512, Category::workspace);
      EXPECT_EQ(arena.live(), 1792u);
    }
    EXPECT_EQ(arena.live(), 1280u);
    arena.allocate(256, Category::workspace);  // the same memory again: below the mark
  }
  EXPECT_EQ(arena.live(), 1024u);
  EXPECT_EQ(arena.high_water(), 1792u);
  EXPECT_EQ(arena.at_high_water(Category::parameters), 1024u);
  EXPECT_EQ(arena.at_high_water(Category::activations), 256u);
  EXPECT_EQ(arena.at_high_water(Category::workspace), 512u);
  EXPECT_EQ(arena.at_high_water(Category::data), 0u);
  std::size_t total = 0;
  for (int c = 0; c < category_count; ++c) total += arena.at_high_water(static_cast<Category>(c));
  EXPECT_EQ(total, arena.high_water());
}

TEST(Arena, refuses_more_than_planned_and_names_the_category) {
  Arena arena(1000);  // rounded up to 1024
  arena.allocate(1024, Category::parameters);
  try {
    arena.allocate(1, Category::activations);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("activations"), std::string::npos);
  }
  EXPECT_EQ(arena.live(), 1024u);
}

TEST(Buffer, moves_and_copies) {
  Stream s;
  Buffer a(1000), empty(0);
  EXPECT_EQ(empty.data(), nullptr);
  const std::vector<char> in(1000, 'x');
  std::vector<char> out(1000, 'y');
  copy_to_device(s, a.data(), in.data(), 1000);
  Buffer b = std::move(a);
  EXPECT_EQ(b.bytes(), 1000u);
  EXPECT_EQ(a.data(), nullptr);
  Buffer c(1000);
  copy_on_device(s, c.data(), b.data(), 1000);
  fill_zero(s, c.data(), 10);
  copy_to_host(s, out.data(), c.data(), 1000);
  s.synchronize();
  EXPECT_EQ(std::vector<char>(out.begin() + 10, out.end()), std::vector<char>(990, 'x'));
  EXPECT_EQ(std::vector<char>(out.begin(), out.begin() + 10), std::vector<char>(10, '\0'));
  b = std::move(c);
  EXPECT_EQ(b.bytes(), 1000u);
}

TEST(DeviceInfo, says_something) {
  const DeviceInfo info = device_info();
  EXPECT_GT(info.cores, 0);
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 20);
  EXPECT_NE(info.name[0], '\0');
}

}  // namespace
}  // namespace forge
