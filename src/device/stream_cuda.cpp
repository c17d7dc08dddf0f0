#include <exception>
#include <utility>

#include "core/error.hpp"
#include "core/last_words.hpp"
#include "device/cuda_check.hpp"
#include "device/stream.hpp"

namespace forge {

struct Stream::Implementation {
  cudaStream_t stream = nullptr;
  std::exception_ptr error;

  // Communication behind computation goes first where both wait for the device.
  explicit Implementation(Kind kind) {
    int least = 0, greatest = 0;
    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, kind == Kind::Worker ? greatest : least),
               "cudaStreamCreateWithPriority");
  }
  // Host work may refer to what its giver owns: a stream finishes before it goes, as the CPU's does.
  ~Implementation() {
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
};

Stream::Stream(int threads, Kind kind) : threads_(threads), impl_(std::make_unique<Implementation>(kind)) {
  require(threads >= 1, "a stream needs at least one thread");
}

Stream::~Stream() = default;

bool Stream::runs_inline() const {
  return true;
}

void* Stream::native() const {
  return impl_->stream;
}

namespace {

struct HostWork {
  StreamWork work;
  std::exception_ptr* error;
};

void run_host_work(void* data) {
  const std::unique_ptr<HostWork> host(static_cast<HostWork*>(data));
  if (*host->error) return;  // work behind a failure isn't run
  try {
    host->work();
  } catch (...) {
    LastWords::speak_now();
    *host->error = std::current_exception();
  }
}

}  // namespace

void Stream::submit(StreamWork work) {
  auto host = std::make_unique<HostWork>(HostWork{std::move(work), &impl_->error});
  cuda_check(cudaLaunchHostFunc(impl_->stream, run_host_work, host.get()), "cudaLaunchHostFunc");
  host.release();
}

void Stream::synchronize() {
  cuda_check(cudaStreamSynchronize(impl_->stream), "cudaStreamSynchronize");
  if (impl_->error) std::rethrow_exception(std::exchange(impl_->error, nullptr));
}

struct Event::Implementation {
  cudaEvent_t event = nullptr;

  Implementation() { cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  ~Implementation() { cudaEventDestroy(event); }
};

void Event::record(Stream& stream) {
  if (!impl_) impl_ = std::make_shared<Implementation>();
  cuda_check(cudaEventRecord(impl_->event, static_cast<cudaStream_t>(stream.native())), "cudaEventRecord");
}

void Event::wait(Stream& stream) const {
  if (impl_)
    cuda_check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.native()), impl_->event, 0), "cudaStreamWaitEvent");
}

void Event::synchronize() const {
  if (impl_) cuda_check(cudaEventSynchronize(impl_->event), "cudaEventSynchronize");
}

bool Event::ready() const {
  return !impl_ || cudaEventQuery(impl_->event) == cudaSuccess;
}

}  // namespace forge
