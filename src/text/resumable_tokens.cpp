#include "text/resumable_tokens.hpp"

#include <bit>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "config/text.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "text/token_writer.hpp"

namespace forge {

static_assert(std::endian::native == std::endian::little, "token files are written without swapping bytes");

namespace fs = std::filesystem;

namespace {

std::string call_of(const Tokenizer& tokenizer, const TokenizeTextOptions& options, bool wide) {
  std::ostringstream text;
  text << tokenizer.name() << '\n'
       << tokenizer.digest() << '\n'
       << options.field << '\n'
       << options.document_begin << ' ' << options.document_end << ' ' << wide;
  for (const std::string& input : options.inputs)
    text << '\n'
         << input << ' ' << fs::file_size(input) << ' ' << fs::last_write_time(input).time_since_epoch().count();
  return std::to_string(hash_of(text.str()));
}

// Where what is there isn't wanted, a new file.
FileHandle open_partial(const std::string& path, bool keeps) {
  if (!keeps) std::remove(path.c_str());
  return keeps ? FileHandle::open_to_append(path) : FileHandle::open_to_write(path);
}

// What a note holds at most, and "" where there is none.
std::string text_of_note(const std::string& path) {
  constexpr std::size_t most = 4096;
  return fs::exists(fs::symlink_status(path)) ? read_text_file(path, most, "the note of a run") : "";
}

}  // namespace

void remove_notes(const std::string& output) {
  for (const char* end : {".partial", ".progress", ".progress.new"}) std::remove((output + end).c_str());
}

ResumableTokens::ResumableTokens(const Tokenizer& tokenizer, const TokenizeTextOptions& options, bool wide)
    : output_(options.output),
      call_(call_of(tokenizer, options, wide)),
      npy_(options.format == OutputFormat::npy),
      wide_(wide),
      file_(open_partial(options.output + ".partial", read_note())) {
  if (!resumed_.resumed) written_ = npy_ ? npy_header_bytes : 0;
  file_.resize(written_);
}

ResumableTokens::~ResumableTokens() {
  if (finished_) return;
  std::remove(partial().c_str());
  std::remove(note().c_str());
}

// Whether a run of the same call has left something to go on with.
bool ResumableTokens::read_note() {
  std::istringstream in(text_of_note(note()));
  std::string call;
  TokenizePosition position;
  TokenizeTextResult result;
  std::uint64_t written = 0;
  if (!(in >> call >> position.file >> position.offset >> position.line >> written >> result.bytes >> result.tokens >>
        result.documents) ||
      call != call_)
    return false;
  std::error_code missing;
  if (fs::file_size(partial(), missing) < written || missing) return false;
  position_ = position;
  resumed_ = result;
  resumed_.resumed = true;
  written_ = written;
  return true;
}

void ResumableTokens::write(const std::vector<std::int32_t>& ids) {
  if (wide_) {
    file_.write_at(written_, ids.data(), 4 * ids.size());
    written_ += 4 * ids.size();
    return;
  }
  narrow_.assign(ids.begin(), ids.end());
  file_.write_at(written_, narrow_.data(), 2 * narrow_.size());
  written_ += 2 * narrow_.size();
}

void ResumableTokens::keep(const TokenizePosition& position, const TokenizeTextResult& result) {
  std::ostringstream text;
  text << call_ << ' ' << position.file << ' ' << position.offset << ' ' << position.line << ' ' << written_ << ' '
       << result.bytes << ' ' << result.tokens << ' ' << result.documents << '\n';
  const std::string line = text.str(), fresh = note() + ".new";
  std::remove(fresh.c_str());
  FileHandle::open_to_write(fresh).write_at(0, line.data(), line.size());
  if (std::rename(fresh.c_str(), note().c_str()) != 0) throw IoFailed("rename " + fresh + " failed");
}

void ResumableTokens::finish() {
  if (npy_) {
    const std::string header = npy_header((written_ - npy_header_bytes) / (wide_ ? 4 : 2), wide_);
    file_.write_at(0, header.data(), header.size());
  }
  file_.commit_as(output_);
  finished_ = true;
  std::remove(note().c_str());
}

}  // namespace forge
