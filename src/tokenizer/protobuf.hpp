#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace forge {

// The fields of an untrusted message in protobuf's wire format, one after the other. Texts are views of the input;
// nothing is read outside of it.
class ProtobufReader {
 public:
  ProtobufReader(std::string_view bytes, const std::string& name) : rest_(bytes), name_(name) {}

  struct Field {
    std::uint32_t number = 0;
    std::uint32_t wire = 0;  // 0: value; 1, 5: value, its 8 or 4 bytes; 2: bytes
    std::uint64_t value = 0;
    std::string_view bytes;
  };
  // False at the end. BadInput: cut, or no such format.
  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    field = {static_cast<std::uint32_t>(key >> 3), static_cast<std::uint32_t>(key & 7), 0, {}};
    if (field.number == 0 || key >> 32 != 0) fail("has no field number");
    if (field.wire == 0)
      field.value = varint();
    else if (field.wire == 1)
      std::memcpy(&field.value, take(8).data(), 8);
    else if (field.wire == 5)
      std::memcpy(&field.value, take(4).data(), 4);
    else if (field.wire == 2)
      field.bytes = take(varint());
    else
      fail("has a field of wire type " + std::to_string(field.wire));
    return true;
  }
  static float as_float(const Field& field) {
    const auto bits = static_cast<std::uint32_t>(field.value);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw BadInput(name_ + ": no SentencePiece model: its message " + what);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail("has a number of more than 64 bits");
  }
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) fail("ends before its fields do");
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(static_cast<std::size_t>(count));
    return taken;
  }
  std::string_view rest_;
  const std::string& name_;
};

}  // namespace forge
