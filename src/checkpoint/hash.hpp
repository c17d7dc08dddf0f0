#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace forge {

using Hash = std::array<std::uint8_t, 32>;

// SHA-256 (FIPS 180-4), fed in parts.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::span<const std::byte> bytes);
  // Once, at the end.
  Hash finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};
Hash sha256(std::span<const std::byte> bytes);

// 64 lower-case hexadecimal digits, and back: false where `text` is anything else.
std::string hex_of(const Hash& hash);
bool read_hex(const std::string& text, Hash& hash);

// Fletcher's checksum as HDF5's filter appends it to a chunk, of an even number of bytes.
std::uint32_t fletcher32(std::span<const std::byte> bytes);

}  // namespace forge
