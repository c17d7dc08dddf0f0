#include "train/screen.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace forge {

namespace {

constexpr const char* clear_to_end = "\x1b[K";

// Less the last one, in which some terminals wrap; 0: there is none, or one without a size, as mpirun gives to ranks
// whose output it collects.
std::size_t columns() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? std::size_t{size.ws_col} - 1 : 0;
}

// The error stays with stdout: the end of the job asks for it.
std::string write(const std::string& text) {
  errno = 0;
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? "" : std::strerror(errno);
}

}  // namespace

Screen::Screen() {
  const char* const kind = std::getenv("TERM");
  terminal_ = ::isatty(STDOUT_FILENO) != 0 && columns() > 0 && kind && *kind && std::string_view(kind) != "dumb";
}

std::string Screen::print(const std::string& text) {
  if (text.empty() || std::ferror(stdout)) return "";
  const std::string begin = drawn_ ? clear_to_end : "";
  drawn_ = false;
  return write(begin + text);
}

std::string Screen::clear() {
  if (!drawn_ || std::ferror(stdout)) return "";
  drawn_ = false;
  return write(clear_to_end);
}

// The cursor goes back to its beginning: whatever else is written, an error, or a line that stays, takes its place.
std::string Screen::redraw(const std::string& line) {
  constexpr std::chrono::milliseconds between(100);
  if (!terminal_ || std::ferror(stdout)) return "";
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - since_ < between) return "";
  since_ = now;
  drawn_ = true;
  return write(line.substr(0, std::min(columns(), line.find('\n'))) + clear_to_end + "\r");
}

}  // namespace forge
