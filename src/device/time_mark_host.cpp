#include <chrono>

#include "device/time_mark.hpp"

namespace forge {

struct TimeMark::Implementation {
  std::chrono::steady_clock::time_point at;
};

TimeMark::TimeMark() : impl_(std::make_shared<Implementation>()) {}

void TimeMark::record(Stream& stream) {
  stream.submit([mark = impl_] { mark->at = std::chrono::steady_clock::now(); });
}

double TimeMark::seconds_since(const TimeMark& first) const {
  return std::chrono::duration<double>(impl_->at - first.impl_->at).count();
}

}  // namespace forge
