#include "data/text_file.hpp"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::size_t input_bytes = 1 << 18;
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

TextFileKind text_file_kind(const std::string& path) {
  TextFileKind kind;
  std::string name = path;
  if (name.ends_with(".gz")) {
    kind.compression = TextFileKind::Compression::gzip;
    name.resize(name.size() - 3);
  } else if (name.ends_with(".zst")) {
    kind.compression = TextFileKind::Compression::zstd;
    name.resize(name.size() - 4);
  }
  kind.json_lines = name.ends_with(".jsonl");
  if (name.ends_with(".parquet"))
    throw BadInput(path +
                   ": a Parquet file; legal: text, or .jsonl, .jsonl.gz and .jsonl.zst; jobscripts/parquet_to_jsonl.py "
                   "writes such a file");
  for (const char* end : {".bz2", ".xz", ".lz4", ".zip", ".7z", ".tar", ".tgz"})
    if (name.ends_with(end))
      throw BadInput(path + ": " + end + " is no text; legal: text, or .jsonl, as it is or with .gz or .zst");
  return kind;
}

TextFile::TextFile(const std::string& path)
    : path_(path), kind_(text_file_kind(path)), file_(FileHandle::open_to_read(path, "text")), size_(file_.size()) {
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
  if (kind_.compression == TextFileKind::Compression::gzip) return read_gzip(to, most);
  if (kind_.compression == TextFileKind::Compression::zstd) return read_zstd(to, most);
  const std::size_t count = to_size(std::min<std::uint64_t>(most, size_ - offset_));
  if (count == 0) return false;
  const std::size_t before = to.size();
  to.resize(before + count);
  file_.read_at(offset_, to.data() + before, count);
  offset_ += count;
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

}  // namespace forge
