#include "device/cuda_check.hpp"
#include "device/device_version.hpp"

namespace forge {

// A machine without a GPU may have no driver.
std::string device_library() {
  int runtime = 0, driver = 0;
  cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  const auto text = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  const bool known = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
  return "CUDA " + text(runtime) + (known ? ", driver for " + text(driver) : ", no driver");
}

}  // namespace forge
