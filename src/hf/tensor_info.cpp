#include "hf/tensor_info.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/json.hpp"
#include "hf/safetensors.hpp"

namespace forge {

std::int64_t TensorInfo::elements() const {
  std::int64_t n = 1;
  for (const auto extent : shape) n *= extent;
  return n;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return json_of(shape);
}

int bits_of_type(const std::string& type) {
  static constexpr std::pair<const char*, int> types[] = {
      {"F64", 64},    {"F32", 32},    {"BF16", 16}, {"F16", 16}, {"I64", 64},    {"I32", 32},   {"I16", 16},
      {"I8", 8},      {"U64", 64},    {"U32", 32},  {"U16", 16}, {"U8", 8},      {"BOOL", 8},   {"F8_E4M3", 8},
      {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"C64", 64},  {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  for (const auto& [name, bits] : types)
    if (type == name) return bits;
  return 0;
}

std::optional<std::uint64_t> bytes_of(const std::string& type, const std::vector<std::int64_t>& shape) {
  std::uint64_t bits = static_cast<std::uint64_t>(bits_of_type(type));
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent < 0; })) return std::nullopt;
  // An extent of zero may stand behind others whose product alone would overflow.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const auto extent : shape)
    if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(extent), &bits) || bits > most) return std::nullopt;
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

}  // namespace forge
