#pragma once

#include <exception>
#include <functional>

namespace forge {

// For as long as it lives, an exception that nobody catches is handed over where it was thrown, in whichever thread:
// nothing has been unwound then, so that no destructor of a stream, a communicator or a checkpoint under way waits for
// other ranks before the error is told. C++ on Linux promises that: it looks for a handler before it unwinds, and calls
// std::terminate where there is none (Itanium C++ ABI, II 1.6); tests/core holds the compiler to it.
//
// Of several threads the first one speaks. One object at a time: the process has one such handler.
class LastWords {
 public:
  // `speak` tells what happened and ends the process; it gets null where there is no exception.
  explicit LastWords(std::function<void(const std::exception_ptr&)> speak);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

  // Whether there is one: what a thread throws is then to be left uncaught.
  static bool wanted();
  // In a handler, of a thread whose exception somebody would ask for too late, or never, as others wait for what the
  // thread had to do: where last words are wanted they are spoken now, of what is being handled. Else nothing happens.
  static void speak_now();

 private:
  std::terminate_handler before_;
};

// What comes before last words, for as long as the object lives: what others would find of a process that didn't
// unwind. `act` runs in the thread that has failed, beside all others; the destructor waits until it is done. One
// object at a time.
class LastAct {
 public:
  explicit LastAct(std::function<void()> act);
  ~LastAct();
  LastAct(const LastAct&) = delete;
  LastAct& operator=(const LastAct&) = delete;
};

}  // namespace forge
