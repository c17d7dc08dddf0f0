#include "config/contents.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "config/text.hpp"

namespace forge {

namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes;
  const char* name;
};

constexpr const char* lfs_pointer =
    "a Git LFS pointer in the place of the file, which `git lfs pull` or `hf download` brings";

// At the start. Those of a few bytes, which ids could have too, are looked at more closely below.
constexpr std::array magics = {Magic{"version https://git-lfs.github.com/spec/", lfs_pointer},
                               Magic{"\x28\xB5\x2F\xFD"sv, "zstd data"},
                               Magic{"\xFD\x37zXZ\0"sv, "xz data"},
                               Magic{"\x04\x22\x4D\x18"sv, "lz4 data"},
                               Magic{"\xFF\x06\0\0sNaPpY"sv, "snappy data"},
                               Magic{"7z\xBC\xAF\x27\x1C"sv, "a 7z archive"},
                               Magic{"Rar!\x1A\x07"sv, "a RAR archive"},
                               Magic{"ARROW1\0\0"sv, "an Arrow file"},
                               Magic{"FEA1"sv, "a Feather file"},
                               Magic{"Obj\x01"sv, "an Avro file"},
                               Magic{"%PDF-"sv, "a PDF file"},
                               Magic{"\x7F"
                                     "ELF\x01\x01\x01"sv,
                                     "a program (ELF)"},
                               Magic{"\x7F"
                                     "ELF\x02\x01\x01"sv,
                                     "a program (ELF)"},
                               Magic{"\x89PNG\r\n\x1A\n"sv, "a picture (PNG)"},
                               Magic{"GIF87a"sv, "a picture (GIF)"},
                               Magic{"GIF89a"sv, "a picture (GIF)"},
                               Magic{"\x89HDF\r\n\x1A\n"sv, "an HDF5 file"},
                               Magic{"\x93NUMPY"sv, "an .npy file"},
                               Magic{"SQLite format 3\0"sv, "an SQLite database"}};

std::uint8_t byte(std::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

bool has(std::string_view head, std::size_t at, std::string_view bytes) {
  return head.size() >= at + bytes.size() && head.substr(at, bytes.size()) == bytes;
}

// Flags, compression level and system of the header (RFC 1952).
bool is_gzip(std::string_view h) {
  return h.size() >= 10 && has(h, 0, "\x1F\x8B\x08") && byte(h, 3) < 32 && (byte(h, 9) < 14 || byte(h, 9) == 255);
}

bool is_zip(std::string_view h) {
  return h.size() >= 10 && (has(h, 0, "PK\x03\x04") || has(h, 0, "PK\x05\x06")) && byte(h, 5) == 0 && byte(h, 9) == 0;
}

bool is_jpeg(std::string_view h) {
  return has(h, 0, "\xFF\xD8\xFF") && (has(h, 6, "JFIF") || has(h, 6, "Exif"));
}

// A stream of messages: the mark, the length of the first one, and the offset of a table in it.
bool is_arrow_stream(std::string_view h) {
  return h.size() >= 12 && has(h, 0, "\xFF\xFF\xFF\xFF") && has(h, 6, std::string_view("\0\0", 2)) && byte(h, 8) < 64 &&
         has(h, 9, std::string_view("\0\0\0", 3));
}

// The length of a header of JSON.
bool is_safetensors(std::string_view h) {
  return h.size() >= 10 && has(h, 4, std::string_view("\0\0\0\0{\"", 6));
}

bool is_lzma(std::string_view h) {
  return h.size() >= 13 && has(h, 0, std::string_view("\x5D\0\0", 3)) &&
         (has(h, 5, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF") || has(h, 10, std::string_view("\0\0\0", 3)));
}

bool is_parquet(std::string_view h) {
  return has(h, 0, "PAR1\x15");
}

// Of Python's protocols 4 and 5: the mark of a frame, and its length.
bool is_pickle(std::string_view h) {
  return h.size() >= 11 && byte(h, 0) == 0x80 && (byte(h, 1) == 4 || byte(h, 1) == 5) && byte(h, 2) == 0x95 &&
         has(h, 7, std::string_view("\0\0\0\0", 4));
}

bool is_bzip2(std::string_view h) {
  return h.size() >= 10 && has(h, 0, "BZh") && has(h, 4, "1AY&SY");
}

}  // namespace

std::string known_contents(std::string_view head) {
  for (const Magic& magic : magics)
    if (head.starts_with(magic.bytes)) return magic.name;
  if (is_gzip(head)) return "gzip data";
  if (is_bzip2(head)) return "bzip2 data";
  if (is_lzma(head)) return "lzma data";
  if (is_zip(head)) return "a ZIP archive (or a PyTorch file)";
  if (is_pickle(head)) return "a pickle of Python";
  if (is_parquet(head)) return "a Parquet file";
  if (is_arrow_stream(head)) return "an Arrow stream, as the library datasets keeps it";
  if (is_safetensors(head)) return "a safetensors file";
  if (is_jpeg(head)) return "a picture (JPEG)";
  if (has(head, 0, "RIFF") && has(head, 8, "WEBP")) return "a picture (WebP)";
  if (has(head, 257, "ustar")) return "a tar archive";
  return "";
}

std::string known_foreign_contents(std::string_view head) {
  if (std::string known = known_contents(head); !known.empty()) return known;
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  const std::string start = lower_case(std::string(head.substr(0, 14)));
  if (start.starts_with("<!doctype html") || start.starts_with("<html"))
    return "an HTML page, such as a download that failed leaves";
  return "";
}

std::string wide_text(std::string_view head) {
  if (has(head, 0, std::string_view("\xFF\xFE\0\0", 4)) || has(head, 0, std::string_view("\0\0\xFE\xFF", 4)))
    return "UTF-32 text";
  if (has(head, 0, "\xFF\xFE") || has(head, 0, "\xFE\xFF")) return "UTF-16 text";
  // Without a mark: of most units the higher bytes are zero, and the lowest ones never.
  constexpr std::size_t least = 8;
  if (head.size() < least) return "";
  std::array<std::size_t, 4> zeros{};
  const std::size_t size = head.size() / 4 * 4;
  for (std::size_t i = 0; i < size; ++i) zeros[i % 4] += head[i] == 0;
  const std::size_t units = size / 4, most = units - units / 8;
  if (zeros[3] == units && zeros[2] >= most && zeros[1] >= most && zeros[0] == 0) return "UTF-32 text";
  if (zeros[0] == units && zeros[1] >= most && zeros[2] >= most && zeros[3] == 0) return "UTF-32 text";
  if (zeros[1] >= most && zeros[3] >= most && zeros[0] == 0 && zeros[2] == 0) return "UTF-16 text";
  if (zeros[0] >= most && zeros[2] >= most && zeros[1] == 0 && zeros[3] == 0) return "UTF-16 text";
  return "";
}

bool is_text(std::string_view bytes) {
  std::size_t at = 0;
  const auto continues = [&](std::size_t i) { return (byte(bytes, i) & 0xC0) == 0x80; };
  while (at < std::min<std::size_t>(bytes.size(), 3) && continues(at)) ++at;
  while (at < bytes.size()) {
    const std::uint8_t c = byte(bytes, at);
    if (c < 0x80) {
      if (c == 0x7F || (c < 0x20 && "\t\n\r\f\v\b\x1B"sv.find(static_cast<char>(c)) == std::string_view::npos))
        return false;
      ++at;
      continue;
    }
    const std::size_t length = c >= 0xC2 && c < 0xE0 ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    if (length == 0) return false;
    for (std::size_t i = 1; i < length; ++i) {
      if (at + i == bytes.size()) return true;
      if (!continues(at + i)) return false;
    }
    at += length;
  }
  return true;
}

}  // namespace forge
