#include "text/text_file.hpp"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "config/contents.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "text/json_line.hpp"

namespace forge {

namespace {

constexpr std::size_t input_bytes = 1 << 18;
constexpr std::size_t head_bytes = 1 << 16;
constexpr int zlib_or_gzip = 15 + 32;  // the largest window; the header says which
constexpr int most_window_log = 31;    // of zstd --long

}  // namespace

struct TextFile::Decompressor {
  std::vector<char> input;
  std::size_t begin = 0, end = 0;  // of what is unread in `input`
  z_stream gzip{};
  bool gzip_open = false;
  ZSTD_DStream* zstd = nullptr;
  bool within = false;  // a member or frame has begun
  ~Decompressor() {
    if (gzip_open) inflateEnd(&gzip);
    ZSTD_freeDStream(zstd);
  }
};

namespace {

constexpr const char* legal_text =
    "; legal: text in UTF-8, or lines of JSON (.jsonl), as it is or compressed with gzip or zstd";

std::string lower_name(const std::string& path) {
  return lower_case(path.substr(path.rfind('/') + 1));
}

// Takes an ending off a name that has one of them.
bool take_ending(std::string& name, std::initializer_list<std::string_view> endings) {
  for (const std::string_view ending : endings)
    if (name.ends_with(ending)) {
      name.resize(name.size() - ending.size());
      return true;
    }
  return false;
}

// ".1", as of files that were rotated or split.
void take_number(std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot != std::string::npos && dot + 1 < name.size() &&
      name.find_first_not_of("0123456789", dot + 1) == std::string::npos)
    name.resize(dot);
}

enum class NamedKind { text, json, json_lines };

// What the name says of the text, whatever it is compressed with.
NamedKind kind_of_name(const std::string& path) {
  std::string name = lower_name(path);
  take_number(name);
  take_ending(name, {".gz", ".gzip", ".zst", ".zstd"});
  take_number(name);
  if (take_ending(name, {".jsonl", ".ndjson", ".jl", ".jsonlines"})) return NamedKind::json_lines;
  return take_ending(name, {".json"}) ? NamedKind::json : NamedKind::text;
}

// Names of what isn't read; of some of these nothing in the contents says it.
void check_name(const std::string& path) {
  const std::string name = lower_name(path);
  if (name.ends_with(".parquet") || name.ends_with(".arrow"))
    throw BadInput(path + ": " + (name.ends_with(".arrow") ? "an Arrow" : "a Parquet") + " file" + legal_text +
                   (name.ends_with(".arrow") ? "; the library datasets writes its data so with to_json"
                                             : "; jobscripts/parquet_to_jsonl.py writes such a file"));
  for (const char* end : {".bz2", ".xz", ".lzma", ".lz4", ".lzo", ".br", ".snappy", ".sz", ".zip", ".7z", ".rar",
                          ".tar", ".tgz", ".z", ".feather", ".orc", ".avro"})
    if (name.ends_with(end)) throw BadInput(path + ": " + end + " is no text" + legal_text);
}

}  // namespace

TextFile::TextFile(const std::string& path, const std::string& field)
    : path_(path), file_(FileHandle::open_to_read(path, "text")), size_(file_.size()) {
  check_name(path);
  std::string start(to_size(std::min<std::uint64_t>(size_, 512)), '\0');
  file_.read_at(0, start.data(), start.size());
  const std::string contents = known_contents(start);
  if (contents == "gzip data") kind_.compression = TextFileKind::Compression::gzip;
  if (contents == "zstd data") kind_.compression = TextFileKind::Compression::zstd;
  std::string name = lower_name(path);
  take_number(name);
  if (kind_.compression == TextFileKind::Compression::none && size_ > 0 &&
      take_ending(name, {".gz", ".gzip", ".zst", ".zstd"}))
    throw BadInput(path + ": its name says that it is compressed, but it holds " +
                   (contents.empty() ? "neither gzip nor zstd data" : contents) + legal_text);
  open_decompressor();
  read_more(head_, head_bytes);
  check_contents();
  kind_.json_lines = has_json_lines(field);
}

void TextFile::check_contents() const {
  std::string contents = known_contents(head_);
  if (contents.empty()) contents = wide_text(head_);
  if (contents.empty()) return;
  const bool within = kind_.compression != TextFileKind::Compression::none;
  throw BadInput(path_ + (within ? ": its compressed data is " : ": is ") + contents + legal_text +
                 (contents.starts_with("UTF-") ? "; iconv -t UTF-8 turns one into the other" : ""));
}

// Of the first lines, whether they are maps, and whether these have the field.
TextFile::FirstLines TextFile::first_lines(const std::string& field) const {
  constexpr int most_lines = 3;
  FirstLines lines;
  std::string_view rest = head_;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  std::string text;
  for (int maps = 0; maps < most_lines && !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::size_t at = 0;
    JsonLineKind found = read_json_field(line, field, text, at);
    // A line that is longer than the head is what its beginning is.
    const bool cut = end == std::string_view::npos && head_.size() >= head_bytes;
    if (cut && maps > 0) break;
    if (cut) {
      const std::string_view start = line.substr(line.find_first_not_of(" \t"));
      found = start.starts_with("{\"" + field + "\"") ? JsonLineKind::found
              : start.starts_with("{\"")              ? JsonLineKind::no_field
                                                      : JsonLineKind::no_json;
    }
    ++maps;
    lines.all_maps = found != JsonLineKind::no_json && (maps == 1 || lines.all_maps);
    lines.all_with_field = found == JsonLineKind::found && (maps == 1 || lines.all_with_field);
  }
  return lines;
}

bool TextFile::has_json_lines(const std::string& field) const {
  const NamedKind named = kind_of_name(path_);
  if (named == NamedKind::json_lines) return true;
  const FirstLines lines = first_lines(field);
  if (named == NamedKind::text) return lines.all_with_field;
  if (lines.all_maps || head_.empty()) return lines.all_maps;
  throw BadInput(path_ + ": its name says JSON, and its lines are no maps" + legal_text +
                 "; `jq -c .[]` makes such lines of a list, `jq -c .` of maps that take several lines");
}

void TextFile::open_decompressor() {
  if (kind_.compression == TextFileKind::Compression::none) return;
  decompressor_ = std::make_unique<Decompressor>();
  decompressor_->input.resize(input_bytes);
  if (kind_.compression == TextFileKind::Compression::gzip) {
    require(inflateInit2(&decompressor_->gzip, zlib_or_gzip) == Z_OK, "inflateInit2");
    decompressor_->gzip_open = true;
  } else {
    decompressor_->zstd = ZSTD_createDStream();
    require(decompressor_->zstd != nullptr, "ZSTD_createDStream");
    ZSTD_DCtx_setParameter(decompressor_->zstd, ZSTD_d_windowLogMax, most_window_log);
  }
}

TextFile::~TextFile() = default;

// More compressed bytes; false at the file's end.
bool TextFile::fill() {
  Decompressor& d = *decompressor_;
  if (d.begin < d.end) return true;
  const std::size_t count = to_size(std::min<std::uint64_t>(d.input.size(), size_ - offset_));
  if (count == 0) return false;
  file_.read_at(offset_, d.input.data(), count);
  offset_ += count;
  d.begin = 0;
  d.end = count;
  return true;
}

bool TextFile::read(std::string& to, std::size_t most) {
  if (head_begin_ == head_.size()) return read_more(to, most);
  const std::size_t count = std::min(most, head_.size() - head_begin_);
  to.append(head_, head_begin_, count);
  head_begin_ += count;
  if (head_begin_ == head_.size()) head_.clear(), head_begin_ = 0;
  return true;
}

bool TextFile::read_more(std::string& to, std::size_t most) {
  if (kind_.compression == TextFileKind::Compression::gzip) return read_gzip(to, most);
  if (kind_.compression == TextFileKind::Compression::zstd) return read_zstd(to, most);
  return read_plain(to, most);
}

bool TextFile::read_plain(std::string& to, std::size_t most) {
  const std::size_t count = to_size(std::min<std::uint64_t>(most, size_ - offset_));
  if (count == 0) return false;
  const std::size_t before = to.size();
  to.resize(before + count);
  file_.read_at(offset_, to.data() + before, count);
  offset_ += count;
  return true;
}

// Whether all that is left is zeros, with which tapes and block devices fill up a file behind its last member.
bool TextFile::only_zeros_left() {
  Decompressor& d = *decompressor_;
  while (fill()) {
    for (; d.begin < d.end; ++d.begin)
      if (d.input[d.begin] != 0) return false;
  }
  return true;
}

// Members of a gzip file follow one another.
bool TextFile::read_gzip(std::string& to, std::size_t most) {
  Decompressor& d = *decompressor_;
  const std::size_t before = to.size();
  to.resize(before + most);
  std::size_t made = 0;
  while (made < most) {
    if (!fill()) {
      if (d.within) throw BadInput(path_ + ": its gzip data ends too early");
      break;
    }
    if (!d.within && d.input[d.begin] == 0) {
      if (only_zeros_left()) break;
      throw BadInput(path_ + ": behind its gzip data stands something else, before byte " + std::to_string(offset_));
    }
    d.gzip.next_in = reinterpret_cast<Bytef*>(d.input.data() + d.begin);
    d.gzip.avail_in = static_cast<uInt>(d.end - d.begin);
    d.gzip.next_out = reinterpret_cast<Bytef*>(to.data() + before + made);
    d.gzip.avail_out = static_cast<uInt>(most - made);
    d.within = true;
    const int status = inflate(&d.gzip, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      throw BadInput(path_ + ": broken gzip data before byte " + std::to_string(offset_) +
                     (d.gzip.msg ? std::string(": ") + d.gzip.msg : ""));
    d.begin = d.end - d.gzip.avail_in;
    made = most - d.gzip.avail_out;
    if (status != Z_STREAM_END) continue;
    d.within = false;
    inflateReset(&d.gzip);
  }
  to.resize(before + made);
  return made > 0;
}

bool TextFile::read_zstd(std::string& to, std::size_t most) {
  Decompressor& d = *decompressor_;
  const std::size_t before = to.size();
  to.resize(before + most);
  ZSTD_outBuffer out{to.data() + before, most, 0};
  while (out.pos < out.size) {
    const bool more = fill();
    if (!more && !d.within) break;
    ZSTD_inBuffer in{d.input.data() + d.begin, d.end - d.begin, 0};
    const std::size_t made = out.pos;
    const std::size_t left = ZSTD_decompressStream(d.zstd, &out, &in);
    if (ZSTD_isError(left))
      throw BadInput(path_ + ": broken zstd data before byte " + std::to_string(offset_) + ": " +
                     ZSTD_getErrorName(left));
    d.begin += in.pos;
    d.within = left != 0;
    if (!more && d.within && out.pos == made) throw BadInput(path_ + ": its zstd data ends too early");
  }
  to.resize(before + out.pos);
  return out.pos > 0;
}

std::string zlib_library_version() {
  return zlibVersion();
}

}  // namespace forge
