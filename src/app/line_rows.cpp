#include "app/line_rows.hpp"

#include <cstdio>
#include <filesystem>
#include <sstream>

#include "config/text.hpp"
#include "core/error.hpp"

namespace forge {

namespace fs = std::filesystem;

LineRows::LineRows(const std::string& output, const std::string& call) : output_(output), call_(call) {
  if (output_ == "-") return;
  read_note();
  if (rows_ == 0) std::remove(partial().c_str());
  file_.emplace(rows_ > 0 ? FileHandle::open_to_append(partial()) : FileHandle::open_to_write(partial()));
  file_->resize(written_);
}

void LineRows::read_note() {
  constexpr std::size_t most = 4096;
  std::error_code missing;
  if (!fs::exists(fs::symlink_status(note(), missing))) return;
  std::istringstream in(read_text_file(note(), most, "the note of a run"));
  std::string call;
  std::int64_t rows = 0;
  std::uint64_t written = 0;
  const bool whole = static_cast<bool>(in >> call >> rows >> written) && rows > 0;
  const std::uintmax_t size = fs::file_size(partial(), missing);
  replaced_ = !whole || call != call_ || missing || size < written;
  if (replaced_) return;
  kept_ = rows_ = rows;
  written_ = written;
}

void LineRows::write(const std::string& text, std::int64_t rows) {
  if (!file_) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0) throw IoFailed("standard output could not be written");
    return;
  }
  file_->write_at(written_, text.data(), text.size());
  written_ += text.size();
  rows_ += rows;
  std::ostringstream line;
  line << call_ << ' ' << rows_ << ' ' << written_ << '\n';
  write_text_file(note(), line.str());
}

void LineRows::finish() {
  if (!file_) return;
  file_->commit_as(output_);
  std::remove(note().c_str());
}

}  // namespace forge
