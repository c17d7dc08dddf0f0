#pragma once

#include <string>

namespace forge {

// A range with a name in the calling thread's row of a profiler that listens to NVTX (Nsight Systems), until it goes.
// Builds for GPUs have it where the headers of NVTX 3 are; elsewhere no profiler ever listens.
class NvtxRange {
 public:
  // Whether a profiler listens. Names are made only then: a step asks the heap for nothing.
  static bool listened_to();

  explicit NvtxRange(const std::string& name);
  ~NvtxRange();
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace forge
