#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "config/file_handle.hpp"

struct evp_md_ctx_st;  // of OpenSSL

namespace forge {

using Hash = std::array<std::uint8_t, 32>;

// SHA-256 (FIPS 180-4), fed in parts.
class Sha256 {
 public:
  Sha256();

  void add(std::span<const std::byte> bytes);
  // The bytes [begin, end) of a file, a mebibyte at a time.
  void add(const FileHandle& file, std::uint64_t begin, std::uint64_t end);
  // Once, at the end.
  Hash finish();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};
Hash sha256(std::span<const std::byte> bytes);

// 64 lower-case hexadecimal digits, and back: false where `text` is anything else.
std::string hex_of(const Hash& hash);
bool read_hex(const std::string& text, Hash& hash);

// Fletcher's checksum as HDF5's filter appends it to a chunk, of an even number of bytes.
std::uint32_t fletcher32(std::span<const std::byte> bytes);

}  // namespace forge
