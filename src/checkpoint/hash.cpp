#include "checkpoint/hash.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <vector>

#include "core/error.hpp"

namespace forge {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  require(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "EVP_DigestInit_ex failed");
}

void Sha256::add(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "EVP_DigestUpdate failed");
}

void Sha256::add(const FileHandle& file, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::byte> buffer;
  for (; begin < end; begin += buffer.size()) {
    buffer.resize(std::min<std::uint64_t>(end - begin, 1 << 20));
    file.read_at(begin, buffer.data(), buffer.size());
    add(buffer);
  }
}

Hash Sha256::finish() {
  Hash hash{};
  unsigned length = 0;
  require(EVP_DigestFinal_ex(context_.get(), hash.data(), &length) == 1 && length == hash.size(),
          "EVP_DigestFinal_ex failed");
  return hash;
}

Hash sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

std::string hex_of(const Hash& hash) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : hash) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

bool read_hex(const std::string& text, Hash& hash) {
  const auto value = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (text.size() != 2 * hash.size()) return false;
  for (std::size_t i = 0; i < hash.size(); ++i) {
    const int high = value(text[2 * i]), low = value(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    hash[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return true;
}

std::uint32_t fletcher32(std::span<const std::byte> bytes) {
  require(bytes.size() % 2 == 0, "fletcher32 of an odd number of bytes");
  constexpr std::size_t words_at_once = 1 << 16;  // the second sum stays below 2^48
  const auto fold = [](std::uint64_t sum) {
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return sum;
  };
  const auto* at = reinterpret_cast<const std::uint8_t*>(bytes.data());
  std::uint64_t first = 0, second = 0;
  for (std::size_t words = bytes.size() / 2; words > 0;) {
    const std::size_t n = std::min(words, words_at_once);
    for (std::size_t i = 0; i < n; ++i, at += 2) {
      first += static_cast<std::uint64_t>(at[0]) << 8 | at[1];
      second += first;
    }
    first = fold(first);
    second = fold(second);
    words -= n;
  }
  return static_cast<std::uint32_t>(second << 16 | first);
}

}  // namespace forge
