#include "parallel/gradient_sync.hpp"

namespace forge {

void GradientSync::post(Stream& compute, void* data, std::int64_t elements, DType type) {
  Event ready;
  ready.record(compute);
  ready.wait(stream_);
  replicas_.all_reduce(stream_, data, elements, type);
}

void GradientSync::wait(Stream& compute) {
  Event done;
  done.record(stream_);
  done.wait(compute);
  if (!stream_.native()) stream_.synchronize();  // hands on what the worker threw
}

}  // namespace forge
