#include "works.hpp"

#include <atomic>
#include <cstring>
#include <string>

#include "device.hpp"
#include "faults.hpp"
#include "machine.hpp"

namespace vgpu {

namespace {

// Blocks go forwards, backwards, or from somewhere in the middle; threads forwards, backwards or shuffled. Some kernels
// stop between two blocks, so that works of other streams come in between.
class Kernel final : public Work {
 public:
  explicit Kernel(std::shared_ptr<const Launch> launch) : launch_(std::move(launch)) {}

  bool step(Device& device) override {
    const Grid& grid = launch_->grid;
    const std::uint64_t n = grid.size();
    if (next_ == 0) draw(device.random(), n);
    const std::uint64_t end = std::min(n, next_ + slice_);
    device.run_blocks(
        grid, threads_, [&](std::uint64_t i) { return (backwards_ ? n - 1 - i : i + first_) % n; }, next_, end);
    next_ = end;
    return next_ == n;
  }
  std::unique_ptr<Work> again() const override { return std::make_unique<Kernel>(launch_); }
  std::string text() const override { return "kernel " + launch_->grid.name; }

 private:
  void draw(Random& random, std::uint64_t n) {
    threads_ = static_cast<ThreadOrder>(random.below(3));
    backwards_ = random.below(3) == 0;
    first_ = backwards_ ? 0 : random.below(2) * random.below(n);
    slice_ = random.below(4) == 0 ? 1 + random.below(n) : n;
  }

  std::shared_ptr<const Launch> launch_;
  std::uint64_t next_ = 0, first_ = 0, slice_ = 0;
  bool backwards_ = false;
  ThreadOrder threads_ = ThreadOrder::forwards;
};

class Copy final : public Work {
 public:
  Copy(void* to, const void* from, std::size_t bytes, CopyKind kind, bool pinned)
      : to_(to), from_(from), bytes_(bytes), kind_(kind), pinned_(pinned) {}

  bool step(Device& device) override {
    const FaultPlace place("an asynchronous copy");
    void* to = kind_ == CopyKind::to_host ? to_ : device.memory().inner(to_);
    const void* from = kind_ == CopyKind::to_device ? from_ : device.memory().inner(from_);
    std::memmove(to, from, bytes_);
    return true;
  }
  unsigned most_delay() const override { return pinned_ ? 9 : 3; }
  std::unique_ptr<Work> again() const override { return std::make_unique<Copy>(to_, from_, bytes_, kind_, pinned_); }
  std::string text() const override { return "a copy of " + std::to_string(bytes_) + " bytes"; }

 private:
  void* to_;
  const void* from_;
  std::size_t bytes_;
  CopyKind kind_;
  bool pinned_;
};

class Set final : public Work {
 public:
  Set(void* to, int value, std::size_t width, std::size_t rows, std::size_t pitch)
      : to_(to), value_(value), width_(width), rows_(rows), pitch_(pitch) {}

  bool step(Device& device) override {
    for (std::size_t r = 0; r < rows_; ++r) std::memset(device.memory().inner(to_) + r * pitch_, value_, width_);
    return true;
  }
  std::unique_ptr<Work> again() const override { return std::make_unique<Set>(to_, value_, width_, rows_, pitch_); }
  std::string text() const override { return "a fill of " + std::to_string(width_ * rows_) + " bytes"; }

 private:
  void* to_;
  int value_;
  std::size_t width_, rows_, pitch_;
};

class HostCall final : public Work {
 public:
  explicit HostCall(std::function<void()> function) : function_(std::move(function)) {}

  bool ready(Device&) override { return !given_ || *done_; }
  bool step(Device& device) override {
    if (given_) return true;
    given_ = true;
    device.host_thread().give([function = function_, done = done_, &device] {
      function();
      *done = true;
      device.ring();
    });
    return false;
  }
  std::unique_ptr<Work> again() const override { return std::make_unique<HostCall>(function_); }
  std::string text() const override { return "a host function"; }

 private:
  std::function<void()> function_;
  std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false);
  bool given_ = false;
};

}  // namespace

std::unique_ptr<Work> kernel_work(std::shared_ptr<const Launch> launch) {
  return std::make_unique<Kernel>(std::move(launch));
}
std::unique_ptr<Work> copy_work(void* to, const void* from, std::size_t bytes, CopyKind kind, bool pinned) {
  return std::make_unique<Copy>(to, from, bytes, kind, pinned);
}
std::unique_ptr<Work> set_work(void* to, int value, std::size_t width, std::size_t rows, std::size_t pitch) {
  return std::make_unique<Set>(to, value, width, rows, pitch);
}
std::unique_ptr<Work> host_work(std::function<void()> function) {
  return std::make_unique<HostCall>(std::move(function));
}

}  // namespace vgpu
