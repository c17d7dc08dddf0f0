#pragma once

#include <memory>
#include <string>

namespace vgpu {

class Device;

// One piece of work in a stream: a kernel, a copy, a product, a group of NCCL's operations. The executor takes it in
// steps, between which works of other streams may go.
class Work {
 public:
  virtual ~Work() = default;
  // Whether step() would get anywhere now. Whoever makes it so rings the device's bell.
  virtual bool ready(Device&) { return true; }
  // True: the work is done.
  virtual bool step(Device& device) = 0;
  // How many choices among several streams may pass it over, at most.
  virtual unsigned most_delay() const { return 3; }
  // Whether other devices decide when it goes on.
  virtual bool meets_others() const { return false; }
  // The same work once more, for the launches of a graph; null: it can't be captured.
  virtual std::unique_ptr<Work> again() const { return nullptr; }
  virtual std::string text() const = 0;
};

}  // namespace vgpu
