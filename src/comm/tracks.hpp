#pragma once

#include <array>
#include <exception>
#include <functional>

#include "comm/fibers.hpp"
#include "device/side_stream.hpp"

namespace forge {

// Two passes of one rank that take turns on its thread (train.overlap: pairs): one computes while the last collective
// of the other is under way. Collectives run in the stream of exchanges instead of the compute stream, in the order of
// the turns, which is the same on all ranks of a group.
class Tracks {
 public:
  // Both must live longer than this object.
  Tracks(Stream& compute, Stream& exchange) : compute_(compute), exchange_(&exchange) {}

  // Both to their ends, the first one first. Throws the error of the one that failed. `sees` is told whose turn begins,
  // and -1 at the end.
  void run(
      const std::function<void()>& first, const std::function<void()>& second,
      std::function<void(int track)> sees = [](int) {});

  // Whether a collective that is given to this stream belongs to a track.
  bool takes(const Stream& stream) const { return track_ >= 0 && &stream == &compute_; }
  // work(stream): a collective, behind the compute stream's work so far; its later work sees the result.
  template <class Work>
  void exchange(Work work) {
    Event& done = done_[track_ > 0];
    exchange_.run(compute_, done, work);
    turn();
    done.wait(compute_);
  }
  // The other track's turn: before this one waits for another stream.
  void turn();

  // While one lives, the track goes on without turns: where the number of collectives follows from the data.
  class Alone {
   public:
    explicit Alone(Tracks* tracks) : tracks_(tracks) { count(1); }
    ~Alone() { count(-1); }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;

   private:
    void count(int by) const {
      if (tracks_) tracks_->alone_ += by;
    }
    Tracks* tracks_;
  };

 private:
  struct Stopped {};  // thrown in a track whose other one has failed

  Stream& compute_;
  SideStream exchange_;
  std::array<Event, 2> done_;  // of each track, which waits for one at a time
  Fibers* fibers_ = nullptr;
  int track_ = -1;                 // that runs now
  std::function<void(int)> sees_;  // of run()
  int alone_ = 0;
  std::exception_ptr failure_;
};

}  // namespace forge
