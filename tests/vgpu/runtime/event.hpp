#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "work.hpp"

namespace vgpu {

class Capture;

// One recording of an event: a point of a stream.
struct Point {
  Device& device;
  std::atomic<bool> passed{false};
  std::chrono::steady_clock::time_point when{};  // valid once passed
};

// A cudaEvent_t: its last recording.
struct Event {
  unsigned flags;
  std::shared_ptr<Point> point{};
  // Where it was recorded in a stream that captures: the capture and the last work before.
  std::weak_ptr<Capture> capture{};
  int captured_after = -1;
};

std::unique_ptr<Work> record_work(std::shared_ptr<Point> point);
std::unique_ptr<Work> wait_work(std::shared_ptr<Point> point);

}  // namespace vgpu
