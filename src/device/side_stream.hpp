#pragma once

#include <memory>

#include "device/stream.hpp"

namespace forge {

// A stream for work behind another stream, `compute`: collectives behind kernels. Where there is none, the work is
// given to `compute` itself.
class SideStream {
 public:
  SideStream() = default;
  // Somebody else's, which must live longer than this; null: none.
  explicit SideStream(Stream* stream) : stream_(stream) {}

  // Makes a stream of its own (on the CPU a thread), where there is none yet.
  void open() {
    if (stream_) return;
    own_ = std::make_unique<Stream>(1, Stream::Kind::Worker);
    stream_ = own_.get();
  }
  explicit operator bool() const { return stream_ != nullptr; }
  Stream& operator*() const { return *stream_; }
  Stream& or_else(Stream& compute) const { return stream_ ? *stream_ : compute; }

  // Work given to this stream from here on sees the results of all work given to `compute` before.
  void follow(Stream& compute) {
    if (!stream_) return;
    ready_.record(compute);
    ready_.wait(*stream_);
  }
  // work(stream) sees the results of all work given to `compute` before; `done`: when it has ended.
  template <class Work>
  void run(Stream& compute, Event& done, Work work) {
    follow(compute);
    Stream& stream = or_else(compute);
    work(stream);
    done.record(stream);
  }
  // Throws a worker's exception again, and so waits for it. A CUDA stream's errors come with its own calls.
  void rethrow() {
    if (stream_ && !stream_->native()) stream_->synchronize();
  }

 private:
  std::unique_ptr<Stream> own_;
  Stream* stream_ = nullptr;
  Event ready_;  // made once
};

}  // namespace forge
