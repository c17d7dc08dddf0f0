#include "data/token_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <vector>

#include "config/contents.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "core/file_errors.hpp"
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
  if (file.is_mask())
    throw BadInput(file.path() + ": element " + number(token) + " at byte offset " + number(file.offset_of(token)) +
                   " is " + number(id) + "; legal in a mask: 0 or 1");
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

void check_declared(const std::string& path, DType type, TokenType declared) {
  if (declared != TokenType::none && type != type_of(declared))
    throw BadInput(path + ": holds " + std::string(name_of(type)) + ", but data.dtype says " +
                   std::string(name_of(type_of(declared))) + "; leave data.dtype out, the file states its own");
}

// The header of an .npy file of so many bytes, which must describe it to its last byte.
NpyHeader check_npy(const FileHandle& file, const std::string& path, NpyUse use) {
  const auto bytes = static_cast<std::int64_t>(file.size());
  std::vector<std::byte> head(to_size(std::min<std::int64_t>(bytes, npy_header_limit)));
  file.read_at(0, head.data(), head.size());
  constexpr std::string_view magic = "\x93NUMPY";
  if (head.size() < magic.size() || std::memcmp(head.data(), magic.data(), magic.size()) != 0)
    throw BadInput(path + ": has no .npy header" +
                   (use == NpyUse::mask
                        ? "; legal: an array that np.save has written"
                        : ": numpy.save writes one; ids without a header, as OLMo and Dolma name them "
                          ".npy, are read from a name that ends in .bin, say of a link, with data.dtype"));
  const NpyHeader header = parse_npy_header(head, path, use);
  const auto size = static_cast<std::int64_t>(size_of(header.type));
  const std::int64_t rest = bytes - header.data_offset;
  if (rest % size != 0 || rest / size != header.count)
    throw BadInput(path + ": the header promises " + number(header.count) + " elements of " + number(size) +
                   " bytes from byte offset " + number(header.data_offset) + " on, but the file ends at byte offset " +
                   number(bytes));
  return header;
}

std::vector<std::byte> head_of(const FileHandle& file, std::size_t most) {
  std::vector<std::byte> head(std::min(to_size(static_cast<std::int64_t>(file.size())), most));
  file.read_at(0, head.data(), head.size());
  return head;
}

// llm.c (dev/data/data_common.py): 256 int32; magic, version, tokens.
constexpr std::int64_t llm_c_header_bytes = 1024;
struct LlmCKind {
  std::int32_t magic, version;
  DType type;
};
constexpr LlmCKind llm_c_kinds[] = {{20240520, 1, DType::u16}, {20240801, 7, DType::u32}};

constexpr std::int32_t llm_c_evaluation = 20240522;

bool starts_with_number(std::span<const std::byte> head, std::int32_t number) {
  return head.size() >= sizeof number && std::memcmp(head.data(), &number, sizeof number) == 0;
}

const LlmCKind* llm_c_kind(std::span<const std::byte> head) {
  for (const LlmCKind& kind : llm_c_kinds)
    if (starts_with_number(head, kind.magic)) return &kind;
  return nullptr;
}

// What FILE.ds.metadata says of the type: "tokenizer|bytes of a token" on its first line; none without such a file, or
// where it names the tokenizer only, as datatrove's first versions wrote it.
TokenType ds_type(const std::string& path) {
  const std::string metadata = path + ".metadata";
  if (!is_file(metadata)) return TokenType::none;
  const std::string text = read_text_file(metadata, 1 << 16, "metadata of token file");
  const std::string line = text.substr(0, text.find('\n'));
  const auto bar = line.rfind('|');
  const std::string size = bar == std::string::npos ? "" : line.substr(bar + 1);
  if (size == "2") return TokenType::uint16;
  if (size == "4") return TokenType::uint32;
  if (size.empty() || size.find_first_not_of("0123456789") != std::string::npos) return TokenType::none;
  throw BadInput(metadata + ": the first line is " + shown(line) + "; legal: NAME|2 or NAME|4, the bytes of a token");
}

// Names that texts have.
bool named_as_text(const std::string& path) {
  const std::string name = lower_case(path);
  for (const char* end : {".txt", ".text", ".md", ".rst", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".jl", ".xml",
                          ".html", ".yaml", ".yml", ".py", ".log", ".tex"})
    if (name.ends_with(end)) return true;
  return false;
}

// Files that hold no ids. Text is told by its bytes: of ids in two bytes some are zero or no characters, unless all of
// them are 8,224 or more and happen to be letters, throughout the file's beginning and end; so a short file must be
// named as a text too. Ids in four bytes below 2^24 have a zero each.
void refuse_foreign(const FileHandle& file, const std::string& path, bool is_npy) {
  constexpr std::uint64_t looked_at = 1 << 14;
  constexpr std::size_t least_bytes = 64, least_values = 8;
  const std::uint64_t size = file.size();
  std::string head(to_size(std::min(size, looked_at)), '\0'), tail = head;
  file.read_at(0, head.data(), head.size());
  file.read_at(size - tail.size(), tail.data(), tail.size());
  if (const std::string contents = known_foreign_contents(head); !contents.empty() && contents != "an .npy file")
    throw BadInput(path + ": is " + contents + "; legal: a file of token ids, as `forge tokenize` makes of texts");
  // The mark of UTF-16 would be the ids 65279 or 65534.
  if (!is_npy && (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF")) && !wide_text(head.substr(2)).empty())
    throw BadInput(path +
                   ": is UTF-16 text, not token ids; legal: the file that `forge tokenize` makes of it in UTF-8");
  if (is_npy || head.empty() || !is_text(head) || !is_text(tail)) return;
  const std::set<char> values(head.begin(), head.end());
  if (!named_as_text(path) && (size < least_bytes || values.size() < least_values)) return;
  throw BadInput(path + ": holds text, not token ids; legal: the file that `forge tokenize` makes of it");
}

}  // namespace

TokenFile TokenFile::open_npy(FileHandle file, const std::string& path, TokenType declared) {
  const NpyHeader header = check_npy(file, path, NpyUse::tokens);
  check_declared(path, header.type, declared);
  return {std::move(file), path, TokenFormat::npy, header.type, header.count, header.data_offset};
}

TokenFile TokenFile::open_mask(const std::string& path) {
  FileHandle file = FileHandle::open_to_read(path, "mask file");
  refuse_foreign(file, path, true);
  const NpyHeader header = check_npy(file, path, NpyUse::mask);
  TokenFile opened(std::move(file), path, TokenFormat::npy, header.type, header.count, header.data_offset);
  opened.mask_ = true;
  return opened;
}

TokenFile TokenFile::open_megatron(const std::string& index, const std::string& bin, TokenType declared) {
  FileHandle file = FileHandle::open_to_read(bin, "token file");
  refuse_foreign(file, bin, false);
  refuse_foreign(FileHandle::open_to_read(index, "Megatron index"), index, false);
  MegatronFile found = open_megatron_index(index, bin, static_cast<std::int64_t>(file.size()));
  check_declared(bin, found.type, declared);
  TokenFile opened(std::move(file), bin, TokenFormat::megatron, found.type, found.tokens, 0);
  opened.documents_ = std::move(found.documents);
  return opened;
}

TokenFile TokenFile::open_llm_c(FileHandle file, const std::string& path, TokenType declared) {
  const auto bytes = static_cast<std::int64_t>(file.size());
  if (bytes < llm_c_header_bytes)
    throw BadInput(path + ": starts like a file of llm.c, but ends at byte offset " + number(bytes) +
                   ", within the header of 1024 bytes");
  std::array<std::int32_t, 3> head{};
  file.read_at(0, head.data(), sizeof head);
  const LlmCKind& kind = *llm_c_kind(std::as_bytes(std::span(head)));
  if (head[1] != kind.version)
    throw BadInput(path + ": llm.c header at byte offset 4: version " + number(head[1]) + "; legal with magic " +
                   number(kind.magic) + ": " + number(kind.version));
  const std::int64_t rest = bytes - llm_c_header_bytes, size = static_cast<std::int64_t>(size_of(kind.type));
  if (rest % size != 0 || rest / size != head[2])
    throw BadInput(path + ": llm.c header at byte offset 8 promises " + number(head[2]) + " tokens of " + number(size) +
                   " bytes, but the file ends at byte offset " + number(bytes));
  check_declared(path, kind.type, declared);
  return {std::move(file), path, TokenFormat::llm_c, kind.type, head[2], llm_c_header_bytes};
}

TokenFile TokenFile::open_raw(FileHandle file, const std::string& path, TokenType declared) {
  const bool ds = path.ends_with(".ds");
  if (const TokenType stated = ds ? ds_type(path) : TokenType::none; stated != TokenType::none) {
    check_declared(path, type_of(stated), declared);
    declared = stated;
  }
  if (declared == TokenType::none)
    throw BadInput(path + ": a raw token file needs data.dtype (uint16 or uint32); it is declared, never guessed");
  const auto bytes = static_cast<std::int64_t>(file.size());
  const DType type = type_of(declared);
  const auto size = static_cast<std::int64_t>(size_of(type));
  if (bytes % size != 0)
    throw BadInput(path + ": its size of " + number(bytes) + " bytes is no multiple of " + number(size) +
                   " (data.dtype " + std::string(name_of(type)) + "): the last token is cut at byte offset " +
                   number(bytes / size * size));
  TokenFile opened(std::move(file), path, ds ? TokenFormat::ds : TokenFormat::raw, type, bytes / size, 0);
  if (ds && is_file(path + ".index")) opened.documents_ = open_ds_index(path + ".index", bytes / size);
  return opened;
}

TokenFile TokenFile::open(const std::string& path, TokenType declared) {
  const bool bin = path.ends_with(".bin");
  const std::string stem = path.substr(0, path.size() - std::min<std::size_t>(path.size(), 4)), index = stem + ".idx";
  if (!is_file(path) && is_file(path + ".idx")) return open_megatron(path + ".idx", path + ".bin", declared);
  if (path.ends_with(".idx")) return open_megatron(path, stem + ".bin", declared);
  FileHandle file = FileHandle::open_to_read(path, "token file");
  refuse_foreign(file, path, path.ends_with(".npy"));
  if (path.ends_with(".npy")) return open_npy(std::move(file), path, declared);
  if (bin && is_file(index) &&
      has_megatron_magic(head_of(FileHandle::open_to_read(index, "Megatron index"), megatron_magic_bytes)))
    return open_megatron(index, path, declared);
  const std::vector<std::byte> head = head_of(file, 16);
  if (head.size() >= 6 && std::memcmp(head.data(), "\x93NUMPY", 6) == 0)
    throw BadInput(path + ": starts like an .npy file; give it a name that ends in .npy");
  if (has_megatron_magic(head))
    throw BadInput(path + ": starts like a Megatron index; give it a name that ends in .idx, beside its .bin file");
  if (starts_with_number(head, llm_c_evaluation))
    throw BadInput(path + ": an evaluation set of llm.c (magic 20240522), which holds no text; legal: a token file");
  if (llm_c_kind(head)) return open_llm_c(std::move(file), path, declared);
  return open_raw(std::move(file), path, declared);
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocabulary) const {
  require(first >= 0 && static_cast<std::int64_t>(out.size()) <= tokens_ - first, "token file: read outside the file");
  switch (type_) {
    case DType::u8:
      return read_as<std::uint8_t>(*this, file_, first, out, vocabulary);
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
