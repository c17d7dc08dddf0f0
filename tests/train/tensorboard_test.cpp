#include "train/tensorboard.hpp"

#include <gtest/gtest.h>

#include "train/tensorboard_event.hpp"

namespace forge::test {
namespace {

TEST(Tensorboard, ChecksAreCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // RFC 3720, appendix B.4, and the catalogue's check
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

// "train/loss" = 0.5 of step 300 at second 2, written out by hand.
TEST(Tensorboard, AnEventIsItsBytes) {
  const std::string event(
      "\x09\x00\x00\x00\x00\x00\x00\x00\x40"     // 1: 2.0
      "\x10\xac\x02"                             // 2: 300
      "\x2a\x13\x0a\x11"                         // 5: {1: {
      "\x0a\x0atrain/loss\x15\x00\x00\x00\x3f",  // 1: tag, 2: 0.5f
      9 + 3 + 4 + 17);
  const std::string record = TensorboardEvent(2, 300).scalar("train/loss", 0.5).record();
  ASSERT_EQ(record.size(), event.size() + 16);
  EXPECT_EQ(record.substr(0, 8), std::string("\x21\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, event.size()), event);
}

TEST(Tensorboard, HistogramsAreAsManyAsAreShown) {
  EXPECT_EQ(histogram_steps(10, 100), 10);
  EXPECT_EQ(histogram_steps(10, 5000), 10);
  EXPECT_EQ(histogram_steps(10, 5001), 20);
  EXPECT_EQ(histogram_steps(1, 1'000'000), 2000);
}

}  // namespace
}  // namespace forge::test
