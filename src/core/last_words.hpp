#pragma once

#include <chrono>
#include <exception>
#include <functional>

namespace forge {

// For as long as it lives, an exception that nobody catches is handed over where it was thrown, in whichever thread:
// nothing has been unwound then, so that no destructor of a stream, a communicator or a checkpoint under way waits for
// other ranks before the error is printed. C++ on Linux promises so: it looks for a handler before it unwinds, and
// calls std::terminate where there is none (Itanium C++ ABI, II 1.6); tests/core holds the compiler to it.
//
// Of several threads the first one speaks. One object at a time: the process has one such handler.
class LastWords {
 public:
  // `speak` reports the error and ends the process; it gets null where there is no exception.
  explicit LastWords(std::function<void(const std::exception_ptr&)> speak);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

  // Whether there is one: a thread must then not catch its exceptions.
  static bool wanted();
  // In a handler, of a thread whose exception others would ask for too late, or never, as they wait for its work:
  // where last words are wanted, speaks them now, of the exception being handled. Else does nothing.
  static void speak_now();

 private:
  std::terminate_handler before_;
};

// A last act before last words, for as long as the object lives: it tidies up for others, as nothing is unwound.
// `act` runs in the thread that has failed, beside all others; the destructor waits until it is done. One object at a
// time.
class LastAct {
 public:
  explicit LastAct(std::function<void()> act);
  ~LastAct();
  // Acts now, in a thread of its own in which `error` is being handled, and waits so long at most: a file system may be
  // the reason why a job hangs.
  static void perform(const std::exception_ptr& error, std::chrono::milliseconds most);
  LastAct(const LastAct&) = delete;
  LastAct& operator=(const LastAct&) = delete;
};

}  // namespace forge
