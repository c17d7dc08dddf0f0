#include "data/npy_header.hpp"

#include <limits>
#include <optional>
#include <string_view>

#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";

// Reads the header's text, a Python dict literal of three entries, from left to right.
class Reader {
 public:
  Reader(std::string_view text, std::size_t offset, const std::string& path)
      : text_(text), offset_(offset), path_(path) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw BadInput(path_ + ": .npy header at byte offset " + std::to_string(offset_ + at_) + ": " + what);
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("expected '") + c + "'");
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  std::string_view quoted() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail("expected a quoted string");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a quoted string doesn't end");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    skip_space();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail("expected True or False");
  }
  std::int64_t integer() {
    skip_space();
    if (at_ >= text_.size() || !is_digit(text_[at_])) fail("expected a number");
    std::int64_t value = 0;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
      const std::int64_t digit = text_[at_] - '0';
      if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10) fail("a number is too large");
      value = value * 10 + digit;
    }
    return value;
  }

 private:
  static bool is_digit(char c) { return '0' <= c && c <= '9'; }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  std::string_view text_;
  std::size_t offset_;
  const std::string& path_;
  std::size_t at_ = 0;
};

DType type_named(std::string_view name, NpyUse use, const Reader& reader) {
  if (use == NpyUse::mask) {
    if (name == "|b1" || name == "|u1" || name == "|i1") return DType::u8;
    reader.fail("element type of " + std::to_string(name.size()) + " letters; a mask is |b1, |u1 or |i1");
  }
  if (name == "<u2") return DType::u16;
  if (name == "<u4") return DType::u32;
  if (name == "<i4") return DType::i32;
  if (name == "<i8") return DType::i64;
  std::string shown;
  for (const char c : name.substr(0, 16)) shown += ' ' <= c && c <= '~' ? c : '?';
  reader.fail("element type '" + shown + "'; token files are <u2, <u4, <i4 or <i8");
}

std::int64_t read_shape(Reader& reader) {
  reader.expect('(');
  if (reader.take(')')) reader.fail("the array is a scalar; a token file has one axis");
  const std::int64_t count = reader.integer();
  const bool comma = reader.take(',');
  if (!reader.take(')')) reader.fail("the array has several axes; a token file has one");
  if (!comma) reader.fail("a shape of one axis is written (N,)");
  return count;
}

NpyHeader read_dict(Reader& reader, NpyUse use) {
  std::optional<DType> type;
  std::optional<bool> fortran;
  std::optional<std::int64_t> count;
  reader.expect('{');
  while (!reader.take('}')) {
    const std::string_view key = reader.quoted();
    reader.expect(':');
    if (key == "descr" && !type)
      type = type_named(reader.quoted(), use, reader);
    else if (key == "fortran_order" && !fortran)
      fortran = reader.boolean();
    else if (key == "shape" && !count)
      count = read_shape(reader);
    else
      reader.fail("a key that is unknown or stands twice");
    if (!reader.take(',')) {
      reader.expect('}');
      break;
    }
  }
  if (!reader.at_end()) reader.fail("text behind the closing brace");
  if (!type || !fortran || !count) reader.fail("descr, fortran_order or shape is missing");
  if (*fortran) reader.fail("fortran_order is True; a token file is in C order");
  return {*type, *count, 0};
}

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& path, NpyUse use) {
  const auto byte = [&](std::size_t i) { return to_size(bytes[i]); };
  const auto text = [&](std::size_t first, std::size_t length) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()) + first, length);
  };
  const auto fail = [&](std::size_t offset, const std::string& what) {
    throw BadInput(path + ": .npy header at byte offset " + std::to_string(offset) + ": " + what);
  };
  if (bytes.size() < npy_magic.size() + 2) fail(bytes.size(), "the file ends before the version");
  if (text(0, npy_magic.size()) != npy_magic) fail(0, "the magic string of an .npy file is missing");
  const std::size_t major = byte(6);
  if (major < 1 || major > 3 || byte(7) != 0)
    fail(6, "version " + std::to_string(major) + "." + std::to_string(byte(7)) + "; 1.0, 2.0 and 3.0 are read");
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t start = 8 + length_bytes;
  if (bytes.size() < start) fail(bytes.size(), "the file ends within the header's length");
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
  if (length > npy_header_limit - start) fail(8, "a length of " + std::to_string(length) + " bytes is too large");
  if (length > bytes.size() - start)
    fail(8, "a length of " + std::to_string(length) + " bytes goes beyond the end of the file");
  Reader reader(text(start, length), start, path);
  NpyHeader header = read_dict(reader, use);
  header.data_offset = static_cast<std::int64_t>(start + length);
  return header;
}

}  // namespace forge
