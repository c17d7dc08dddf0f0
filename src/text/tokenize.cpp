#include "text/tokenize.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "config/output_file.hpp"
#include "config/output_lock.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "text/resumable_tokens.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

static_assert(std::endian::native == std::endian::little, "token files are written without swapping bytes");

namespace {

constexpr std::size_t text_piece_bytes = 1 << 16;

// Turns bytes into tokens and writes them in pieces.
class ByteWriter {
 public:
  ByteWriter(const FileHandle& out, DocumentEnd document_end) : out_(out), document_end_(document_end) {
    tokens_.reserve(2 * text_piece_bytes);
  }

  void add(std::span<const std::byte> text) {
    for (const std::byte b : text) add(static_cast<std::uint8_t>(b));
    flush();
  }
  void end_of_file() {
    if (document_end_ != DocumentEnd::none) end_document();
    line_start_ = true;
    blank_line_ = false;
    flush();
  }
  const TokenizeResult& result() const { return result_; }
  IllFormedBytes& ill_formed() { return result_.ill_formed; }

 private:
  void add(std::uint8_t byte) {
    // A document ends behind the empty lines that follow it, so that it starts with its first character. A carriage
    // return alone doesn't fill a line.
    if (byte == '\n') {
      blank_line_ = blank_line_ || line_start_;
      line_start_ = true;
    } else if (byte != '\r') {
      if (document_end_ == DocumentEnd::blank_lines && line_start_ && blank_line_) end_document();
      line_start_ = blank_line_ = false;
      has_text_ = true;
    }
    tokens_.push_back(byte);
    ++result_.bytes;
    ++result_.tokens;
  }
  // A document without text is none.
  void end_document() {
    if (!has_text_) return;
    tokens_.push_back(static_cast<std::uint16_t>(byte_document_end));
    ++result_.tokens;
    ++result_.documents;
    has_text_ = false;
  }
  void flush() {
    const std::size_t bytes = tokens_.size() * sizeof(tokens_[0]);
    out_.write_at(written_, tokens_.data(), bytes);
    written_ += bytes;
    tokens_.clear();
  }

  const FileHandle& out_;
  std::uint64_t written_ = 0;  // bytes
  DocumentEnd document_end_;
  TokenizeResult result_;
  std::vector<std::uint16_t> tokens_;
  bool line_start_ = true;
  bool blank_line_ = false;
  bool has_text_ = false;
};

void append(ByteWriter& writer, const std::string& path, std::vector<std::byte>& piece) {
  const FileHandle input = FileHandle::open_to_read(path, "text");
  const std::uint64_t size = input.size();
  std::string text;  // what may be half a character, and the piece
  for (std::uint64_t offset = 0; offset < size;) {
    const auto count = to_size(std::min<std::uint64_t>(size - offset, piece.size()));
    input.read_at(offset, piece.data(), count);
    writer.add(std::span(piece).first(count));
    const std::size_t before = text.size();
    text.append(reinterpret_cast<const char*>(piece.data()), count);
    offset += count;
    const std::size_t rest =
        writer.ill_formed().count(text, path, static_cast<std::int64_t>(offset - count - before), true, offset == size);
    text.erase(0, text.size() - rest);
  }
  writer.end_of_file();
}

}  // namespace

void IllFormedBytes::add(const IllFormedBytes& other) {
  if (first.empty()) first = other.first;
  bytes += other.bytes;
  of += other.of;
}

std::size_t IllFormedBytes::count(std::string_view text, const std::string& place, std::int64_t offset,
                                  bool with_offset, bool ends) {
  std::size_t at = 0;
  while (at < text.size()) {
    const ValidPrefix prefix = valid_prefix(text.substr(at));
    at += prefix.valid;
    if (prefix.broken == 0) break;
    // Half a character may become a whole one.
    if (!ends && at + prefix.broken == text.size() && static_cast<unsigned char>(text[at]) >= 0xC2) break;
    if (first.empty())
      first = place + (with_offset ? ", byte " + std::to_string(offset + static_cast<std::int64_t>(at)) : "");
    bytes += static_cast<std::int64_t>(prefix.broken);
    at += prefix.broken;
  }
  of += static_cast<std::int64_t>(at);
  return text.size() - at;
}

TokenizeResult tokenize_bytes(const TokenizeOptions& options) {
  if (options.inputs.empty()) throw BadInput("tokenize: no text file is named");
  if (options.output.empty()) throw BadInput("tokenize: no output file is named");
  if (options.output.ends_with(".npy"))
    throw BadInput(options.output + ": tokenize writes raw uint16 files; choose a name that doesn't end in .npy");
  for (const std::string& input : options.inputs)
    FileHandle::open_to_read(input, "text");  // before anything is written
  check_output(options.inputs, options.output);

  const OutputLock lock(options.output);
  remove_notes(options.output);
  OutputFile out(options.output);
  ByteWriter writer(out.file(), options.document_end);
  std::vector<std::byte> piece(text_piece_bytes);
  for (const std::string& input : options.inputs) append(writer, input, piece);
  if (writer.result().tokens == 0) throw BadInput("tokenize: the text is empty");
  out.commit();
  return writer.result();
}

}  // namespace forge
