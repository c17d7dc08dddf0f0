#include "app/line_input.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "config/text.hpp"
#include "core/error.hpp"
#include "core/parse.hpp"
#include "core/random.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 34;  // of a file

// Whether standard input has something to read, or has ended.
bool input_is_ready() {
  constexpr int milliseconds = 2000;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const int ready = ::poll(&input, 1, milliseconds);
  if (ready < 0 && errno != EINTR) throw IoFailed(std::string("standard input: ") + std::strerror(errno));
  return ready > 0;
}

}  // namespace

LineInput::LineInput(const std::string& file) : file_(file) {
  if (is_stream()) return;
  unread_ = read_text_file(file, most_bytes, "the lines");
  hash_ = hash_of(unread_);
  ended_ = true;
  while (begin_ < unread_.size()) take_line();
  unread_.clear();
  if (lines_.empty()) throw BadInput(file + ": has no line; legal: lines of JSON");
}

std::string LineInput::place(std::size_t line) const {
  return (is_stream() ? "standard input" : file_) + ", line " + std::to_string(numbers_.at(line));
}

// Takes one line of what is unread; false: there is none that is whole.
bool LineInput::take_line() {
  std::size_t end = unread_.find('\n', begin_);
  if (end == std::string::npos && (!ended_ || begin_ == unread_.size())) return false;
  if (end == std::string::npos) end = unread_.size();
  const std::string line = unread_.substr(begin_, end - begin_);
  begin_ = end < unread_.size() ? end + 1 : end;
  ++number_;
  if (trimmed(line).empty()) return true;
  lines_.push_back(line);
  numbers_.push_back(number_);
  return true;
}

void LineInput::read_more() {
  char part[1 << 16];
  const ssize_t bytes = ::read(STDIN_FILENO, part, sizeof part);
  if (bytes < 0 && errno != EINTR) throw IoFailed(std::string("standard input: ") + std::strerror(errno));
  if (bytes > 0) unread_.append(part, to_size(bytes));
  ended_ = bytes == 0;
}

// A batch that isn't whole yet stays at hand for the next call.
LineInput::Next LineInput::next() {
  if (!waits_) {
    lines_.clear();
    numbers_.clear();
  }
  waits_ = false;
  for (;;) {
    const std::size_t before = lines_.size();
    if (take_line()) {
      if (lines_.size() > before || before == 0) continue;
      unread_.erase(0, begin_);
      begin_ = 0;
      return Next::batch;
    }
    if (ended_) return lines_.empty() ? Next::end : Next::batch;
    if (!input_is_ready()) {
      waits_ = true;
      return Next::nothing_yet;
    }
    read_more();
  }
}

}  // namespace forge
