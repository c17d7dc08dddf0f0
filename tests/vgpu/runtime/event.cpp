#include "event.hpp"

#include "machine.hpp"

namespace vgpu {

namespace {

class Record final : public Work {
 public:
  explicit Record(std::shared_ptr<Point> point) : point_(std::move(point)) {}
  bool step(Device&) override {
    point_->when = std::chrono::steady_clock::now();
    point_->passed = true;
    Machine::get().ring_all();
    return true;
  }
  std::string text() const override { return "an event's record"; }

 private:
  std::shared_ptr<Point> point_;
};

class Wait final : public Work {
 public:
  explicit Wait(std::shared_ptr<Point> point) : point_(std::move(point)) {}
  bool ready(Device&) override { return point_->passed; }
  bool step(Device&) override { return true; }
  std::string text() const override { return "a wait for an event"; }

 private:
  std::shared_ptr<Point> point_;
};

}  // namespace

std::unique_ptr<Work> record_work(std::shared_ptr<Point> point) {
  return std::make_unique<Record>(std::move(point));
}

std::unique_ptr<Work> wait_work(std::shared_ptr<Point> point) {
  return std::make_unique<Wait>(std::move(point));
}

}  // namespace vgpu
