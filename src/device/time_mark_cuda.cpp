#include "device/cuda_check.hpp"
#include "device/time_mark.hpp"

namespace forge {

struct TimeMark::Implementation {
  cudaEvent_t event = nullptr;

  Implementation() { cuda_check(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags"); }
  ~Implementation() { cudaEventDestroy(event); }
};

TimeMark::TimeMark() : impl_(std::make_shared<Implementation>()) {}

void TimeMark::record(Stream& stream) {
  cuda_check(cudaEventRecord(impl_->event, static_cast<cudaStream_t>(stream.native())), "cudaEventRecord");
}

double TimeMark::seconds_since(const TimeMark& first) const {
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, first.impl_->event, impl_->event), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace forge
