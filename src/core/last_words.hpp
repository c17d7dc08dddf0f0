#pragma once

#include <exception>
#include <functional>

namespace forge {

// For as long as it lives, an exception that nobody catches is handed over where it was thrown, in whichever thread:
// nothing has been unwound then, so that no destructor of a stream, a communicator or a checkpoint under way waits for
// other ranks before the error is told. C++ on Linux promises that: it looks for a handler before it unwinds, and calls
// std::terminate where there is none (Itanium C++ ABI, II 1.6); tests/core holds the compiler to it. A thread that
// caught something which nobody would ask it for in time calls std::terminate itself.
//
// Of several threads the first one speaks. One object at a time: the process has one such handler.
class LastWords {
 public:
  // `speak` tells what happened and ends the process; it gets null where there is no exception.
  explicit LastWords(std::function<void(const std::exception_ptr&)> speak);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  std::terminate_handler before_;
};

}  // namespace forge
