#include "comm/tracks.hpp"

#include <utility>

#include "core/error.hpp"

namespace forge {

namespace {

constexpr std::size_t track_stack_bytes = std::size_t{8} << 20;

}  // namespace

void Tracks::run(const std::function<void()>& first, const std::function<void()>& second,
                 std::function<void(int)> sees) {
  require(track_ < 0, "tracks don't nest");
  sees_ = std::move(sees);
  const auto body = [&](int number) {
    track_ = number;
    sees_(number);
    try {
      if (!failure_) (number == 0 ? first : second)();
    } catch (const Stopped&) {
    } catch (...) {
      failure_ = std::current_exception();
    }
  };
  Fibers fibers(2, body, track_stack_bytes);
  fibers_ = &fibers;
  fibers.run([] { throw Error("tracks sleep that nobody wakes"); });
  fibers_ = nullptr;
  track_ = -1;
  sees_(-1);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  exchange_.rethrow();
}

void Tracks::turn() {
  if (track_ < 0 || alone_ > 0) return;
  const int mine = track_;
  fibers_->yield();
  track_ = mine;
  sees_(mine);
  if (failure_) throw Stopped{};
}

}  // namespace forge
