#include "data/token_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "data/npy_header.hpp"

namespace forge {

static_assert(std::endian::native == std::endian::little, "token files are read without swapping bytes");

namespace {

// Bytes that a read converts at a time, on the stack.
constexpr std::size_t piece_bytes = 16384;

std::string number(std::int64_t value) {
  return std::to_string(value);
}

[[noreturn]] void refuse_id(const TokenFile& file, std::int64_t token, std::int64_t id, std::int64_t vocabulary) {
  throw BadInput(file.path() + ": token " + number(token) + " at byte offset " + number(file.offset_of(token)) +
                 " is " + number(id) + ", outside the vocabulary of " + number(vocabulary) + " (ids 0 to " +
                 number(vocabulary - 1) + ")");
}

// out := elements of type T, from token `first` of the file on.
template <class T>
void read_as(const TokenFile& file, const FileHandle& source, std::int64_t first, std::span<std::int32_t> out,
             std::int64_t vocabulary) {
  std::array<T, piece_bytes / sizeof(T)> piece;
  while (!out.empty()) {
    const std::size_t n = std::min(out.size(), piece.size());
    source.read_at(static_cast<std::uint64_t>(file.offset_of(first)), piece.data(), n * sizeof(T));
    for (std::size_t i = 0; i < n; ++i) {
      const auto id = static_cast<std::int64_t>(piece[i]);
      if (id < 0 || id >= vocabulary) refuse_id(file, first + static_cast<std::int64_t>(i), id, vocabulary);
      out[i] = static_cast<std::int32_t>(id);
    }
    out = out.subspan(n);
    first += static_cast<std::int64_t>(n);
  }
}

DType type_of(TokenType declared) {
  return declared == TokenType::uint16 ? DType::u16 : DType::u32;
}

// The header of an .npy file of so many bytes, which must describe it to its last byte.
NpyHeader check_npy(const FileHandle& file, const std::string& path, std::int64_t bytes, TokenType declared) {
  std::vector<std::byte> head(to_size(std::min<std::int64_t>(bytes, npy_header_limit)));
  file.read_at(0, head.data(), head.size());
  const NpyHeader header = parse_npy_header(head, path);
  if (declared != TokenType::none && header.type != type_of(declared))
    throw BadInput(path + ": holds " + std::string(name_of(header.type)) + ", but data.dtype says " +
                   std::string(name_of(type_of(declared))) + "; leave data.dtype out, an .npy file states its own");
  const auto size = static_cast<std::int64_t>(size_of(header.type));
  const std::int64_t rest = bytes - header.data_offset;
  if (rest % size != 0 || rest / size != header.count)
    throw BadInput(path + ": the header promises " + number(header.count) + " elements of " + number(size) +
                   " bytes from byte offset " + number(header.data_offset) + " on, but the file ends at byte offset " +
                   number(bytes));
  return header;
}

}  // namespace

TokenFile TokenFile::open(const std::string& path, TokenType declared) {
  FileHandle file = FileHandle::open_to_read(path, "token file");
  const auto bytes = static_cast<std::int64_t>(file.size());
  if (path.ends_with(".npy")) {
    const NpyHeader header = check_npy(file, path, bytes, declared);
    return {std::move(file), path, header.type, header.count, header.data_offset};
  }
  std::array<char, 6> head{};
  file.read_at(0, head.data(), to_size(std::min<std::int64_t>(bytes, head.size())));
  if (std::memcmp(head.data(), "\x93NUMPY", head.size()) == 0)
    throw BadInput(path + ": starts like an .npy file; give it a name that ends in .npy");
  if (declared == TokenType::none)
    throw BadInput(path + ": a raw token file needs data.dtype (uint16 or uint32); it is declared, never guessed");
  const DType type = type_of(declared);
  const auto size = static_cast<std::int64_t>(size_of(type));
  if (bytes % size != 0)
    throw BadInput(path + ": its size of " + number(bytes) + " bytes is no multiple of " + number(size) +
                   " (data.dtype " + std::string(name_of(type)) + "): the last token is cut at byte offset " +
                   number(bytes / size * size));
  return {std::move(file), path, type, bytes / size, 0};
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocabulary) const {
  require(first >= 0 && static_cast<std::int64_t>(out.size()) <= tokens_ - first, "token file: read outside the file");
  switch (type_) {
    case DType::u16:
      return read_as<std::uint16_t>(*this, file_, first, out, vocabulary);
    case DType::u32:
      return read_as<std::uint32_t>(*this, file_, first, out, vocabulary);
    case DType::i32:
      return read_as<std::int32_t>(*this, file_, first, out, vocabulary);
    case DType::i64:
      return read_as<std::int64_t>(*this, file_, first, out, vocabulary);
    default:
      throw Error("token file: impossible element type");
  }
}

}  // namespace forge
