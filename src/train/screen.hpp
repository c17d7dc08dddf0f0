#pragma once

#include <chrono>
#include <string>

namespace forge {

// Standard output while a run trains: lines that stay and, on a terminal, below them one that is redrawn. Of one
// thread.
class Screen {
 public:
  // Whether standard output is a terminal that can redraw (TERM isn't dumb).
  Screen();

  // Both return "" or why standard output can't be written: once; after that they write nothing.
  // Lines that stay.
  std::string print(const std::string& text);
  // Takes the line away.
  std::string clear();
  // The line's text now, up to its end or the terminal's, at most ten times a second; nothing without a terminal.
  std::string redraw(const std::string& line);

 private:
  bool terminal_ = false, drawn_ = false;
  std::chrono::steady_clock::time_point since_{};
};

}  // namespace forge
