#pragma once

#include <cstdint>
#include <memory>

#include "device/stream_work.hpp"

namespace forge {

// An ordered queue of work on this rank's device. Everything that computes or communicates takes one.
//  CUDA build: a cudaStream_t.
//  CPU build:  Inline runs each piece of work in the calling thread at once; Worker runs it in order in a thread of its
//              own, so that communication proceeds behind computation.
// A stream also carries the number of OpenMP threads its work may use: ranks may be threads of one process.
class Stream {
 public:
  enum class Kind { Inline, Worker };
  explicit Stream(int threads = 1, Kind kind = Kind::Inline);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int threads() const { return threads_; }
  // Runs host work in the order of the stream. An exception of a worker is thrown by the next call of synchronize().
  void submit(StreamWork work);
  // Whether work given to the stream runs in the calling thread: parallel_for then needs no copy of its body.
  bool runs_inline() const;
  // work(), at once or by submit().
  template <class F>
  void run(F work) {
    if (runs_inline())
      work();
    else
      submit(std::move(work));
  }
  void synchronize();
  // cudaStream_t in the CUDA build, else null.
  void* native() const;

 private:
  friend class Event;
  struct Implementation;
  int threads_;
  std::unique_ptr<Implementation> impl_;
};

// A point in a stream that another stream, or the host, can wait for.
class Event {
 public:
  Event() = default;
  Event(Event&&) noexcept = default;
  Event& operator=(Event&&) noexcept = default;

  void record(Stream& stream);
  // Work given to the stream from here on starts after the recorded point; no effect before the first record.
  void wait(Stream& stream) const;
  void synchronize() const;
  // Whether the recorded point was passed.
  bool ready() const;

 private:
  friend class Stream;
  struct Implementation;
  std::shared_ptr<Implementation> impl_;
  std::uint64_t position_ = 0;  // CPU build: in the stream's queue
};

}  // namespace forge
