#include "device.hpp"

#include <algorithm>

#include "fail.hpp"
#include "settings.hpp"

namespace vgpu {

namespace {

std::uint64_t seed_of(int device, std::uint64_t purpose) {
  return settings().seed * 1000003 + static_cast<std::uint64_t>(device) * 17 + purpose;
}

void reset_floating_point() {
#if defined(__x86_64__)
  // A GPU keeps denormal numbers, whatever the thread that made this one does.
  __builtin_ia32_ldmxcsr(0x1f80);
#endif
}

}  // namespace

Device::Device(int number)
    : number_(number),
      memory_(number, settings().memory),
      random_(seed_of(number, 1)),
      block_(memory_, seed_of(number, 2)),
      nccl_(number, memory_) {
  draw_hold();
  last_progress_ = Clock::now();
  executor_ = std::thread([this] { run(); });
  executor_.detach();
}

// ---- hosts

Stream* Device::create_stream() {
  const std::lock_guard lock(mutex_);
  streams_.push_back(Stream{*this, streams_made_++});
  return &streams_.back();
}

void Device::destroy(Stream* stream) {
  wait(*stream);
  const std::lock_guard lock(mutex_);
  if (lagging_ == stream) lagging_ = nullptr;
  streams_.remove_if([&](const Stream& s) { return &s == stream; });
}

bool Device::has(const Stream* stream) {
  const std::lock_guard lock(mutex_);
  return std::any_of(streams_.begin(), streams_.end(), [&](const Stream& s) { return &s == stream; });
}

void Device::give(Stream& stream, std::unique_ptr<Work> work) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_work_++ == 0) first_given_ = last_progress_ = Clock::now();
    ++stream.given;
    stream.queue.push_back(std::move(work));
  }
  ring();
}

void Device::wait_until(const std::function<bool()>& passed) {
  std::unique_lock lock(mutex_);
  ++hosts_waiting_;
  ring();
  done_.wait(lock, passed);
  --hosts_waiting_;
}

void Device::wait(Stream& stream) {
  std::uint64_t position = 0;
  {
    const std::lock_guard lock(mutex_);
    position = stream.given;
  }
  wait_until([&] { return stream.done >= position; });
}

void Device::wait_for_all() {
  wait_until([this] { return waiting_work_ == 0; });
}

bool Device::idle(Stream& stream) {
  const std::lock_guard lock(mutex_);
  return stream.queue.empty();
}

void Device::halt() {
  halting_ = true;
  ring();
  for (int i = 0; i < 2000 && !halted_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// ---- the executor

void Device::draw_hold() {
  constexpr std::uint64_t counts[] = {1, 4, 64, 4096};
  constexpr int milliseconds[] = {0, 1, 4};
  hold_count_ = counts[random_.below(std::size(counts))];
  hold_time_ = std::chrono::milliseconds(milliseconds[random_.below(std::size(milliseconds))]);
}

bool Device::held() const {
  return !awake_ && hosts_waiting_ == 0 && waiting_work_ < hold_count_ && Clock::now() - first_given_ < hold_time_;
}

void Device::draw_lag() {
  std::vector<Stream*> others;
  bool meets = false;
  for (Stream& s : streams_)
    if (!s.queue.empty()) {
      if (s.queue.front()->meets_others())
        meets = true;
      else if (s.queue.front()->ready(*this))
        others.push_back(&s);
    }
  if (!meets || others.empty() || Clock::now() >= lag_end_) lagging_ = nullptr;
  constexpr std::uint64_t seldom = 128;
  if (lagging_ != nullptr || !meets || others.empty() || random_.below(seldom) > 0) return;
  constexpr int milliseconds[] = {1, 10, 60};
  lagging_ = others[random_.below(others.size())];
  lag_end_ = Clock::now() + std::chrono::milliseconds(milliseconds[random_.below(std::size(milliseconds))]);
}

// One of the streams that can go on, or null. What is passed over is so for a number of choices, never for ever.
Stream* Device::choose() {
  draw_lag();
  std::vector<Stream*> can, soon;
  for (Stream& s : streams_) {
    if (s.queue.empty() || &s == lagging_ || !s.queue.front()->ready(*this)) continue;
    if (s.delay == Stream::undrawn)
      s.delay = random_.below(3) > 0 ? 0 : static_cast<int>(random_.below(s.queue.front()->most_delay() + 1));
    (s.delay > 0 ? soon : can).push_back(&s);
  }
  for (Stream* s : soon) --s->delay;
  const std::vector<Stream*>& among = can.empty() ? soon : can;
  return among.empty() ? nullptr : among[random_.below(among.size())];
}

void Device::run() {
  reset_floating_point();
  std::unique_lock lock(mutex_);
  while (!halting_) {
    const std::uint32_t heard = memory_.bell().heard();
    Stream* stream = waiting_work_ == 0 || held() ? nullptr : choose();
    if (stream == nullptr) {
      rest(lock, heard);
      continue;
    }
    awake_ = true;
    Work& work = *stream->queue.front();
    lock.unlock();
    const bool done = work.step(*this);
    lock.lock();
    last_progress_ = Clock::now();
    if (!done) continue;
    const std::unique_ptr<Work> finished = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->done;
    --waiting_work_;
    stream->delay = Stream::undrawn;
    done_.notify_all();
  }
  halted_ = true;
}

void Device::rest(std::unique_lock<std::mutex>& lock, std::uint32_t heard) {
  double seconds = 1;
  if (waiting_work_ == 0) {
    if (awake_) draw_hold();
    awake_ = false;
  } else if (held() || lagging_ != nullptr) {
    seconds = 1e-3;
  } else {
    check_progress();
    // Others look at what this device waits for, and want to know that it still does.
    if (nccl_.waits()) seconds = 0.05;
  }
  lock.unlock();
  memory_.close();
  memory_.bell().sleep(heard, seconds);
  lock.lock();
}

void Device::check_progress() {
  const double since = std::chrono::duration<double>(Clock::now() - last_progress_).count();
  if (hosts_waiting_ > 0 && since > settings().timeout_seconds)
    fail("device " + std::to_string(number_) + " has done nothing for " + std::to_string(static_cast<int>(since)) +
         " seconds, and a host waits (FORGE_VGPU_TIMEOUT_SECONDS):\n" + queues_text());
}

std::string Device::queues_text() const {
  std::string text;
  for (const Stream& s : streams_)
    if (!s.queue.empty())
      text += "  stream " + std::to_string(s.number) + ", " + std::to_string(s.queue.size()) +
              " works, first: " + s.queue.front()->text() + "\n";
  return text;
}

void Device::run_blocks(const Grid& grid, ThreadOrder order, const std::function<std::uint64_t(std::uint64_t)>& number,
                        std::uint64_t begin, std::uint64_t end) {
  memory_.open();
  block_.begin(grid, order);
  for (std::uint64_t i = begin; i < end; ++i) block_.run(number(i));
  block_.end();
}

}  // namespace vgpu
