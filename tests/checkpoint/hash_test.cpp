#include "checkpoint/hash.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace forge::test {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span<const char>(text));
}

// The examples of FIPS 180-4.
TEST(Hash, IsSha256) {
  EXPECT_EQ(hex_of(sha256(bytes_of("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::string text(1000, 'x');
  Sha256 parts;
  for (const std::size_t n : {1, 63, 64, 65, 807}) parts.add(bytes_of(std::string(n, 'x')));
  EXPECT_EQ(parts.finish(), sha256(bytes_of(text)));
}

TEST(Hash, ReadsItsOwnDigits) {
  const Hash hash = sha256(bytes_of("abc"));
  Hash read{};
  EXPECT_TRUE(read_hex(hex_of(hash), read));
  EXPECT_EQ(read, hash);
  for (const std::string& wrong : {std::string(), std::string(63, '0'), std::string(65, '0'), std::string(64, 'g'),
                                   std::string(64, 'A'), std::string(64, '\0')})
    EXPECT_FALSE(read_hex(wrong, read)) << wrong;
}

// Sums modulo 65535 of big-endian words, as the textbook has them.
TEST(Hash, Fletcher) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 400'002; ++i) bytes.push_back(static_cast<std::byte>(i * 7 + i / 256));
  std::uint64_t a = 0, b = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    a = (a + (static_cast<std::uint64_t>(bytes[i]) << 8 | static_cast<std::uint64_t>(bytes[i + 1]))) % 65535;
    b = (b + a) % 65535;
  }
  EXPECT_EQ(fletcher32(bytes), b << 16 | a);
  EXPECT_EQ(fletcher32(std::vector<std::byte>(8)), 0u);
  EXPECT_EQ(fletcher32(std::vector<std::byte>(2, std::byte{0xff})), 0xffffffffu) << "never 0 for bytes that aren't";
}

}  // namespace
}  // namespace forge::test
