#include "nccl_turns.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "fail.hpp"
#include "memory.hpp"
#include "settings.hpp"

namespace vgpu {

namespace {

// "DEVICE:LAUNCH"
std::int64_t fault_of(int device) {
  const std::string& text = settings().nccl_fault;
  if (text.empty()) return 0;
  char* rest = nullptr;
  const long of = std::strtol(text.c_str(), &rest, 10);
  const long launch = *rest == ':' ? std::strtol(rest + 1, &rest, 10) : 0;
  if (*rest != '\0' || launch < 1)
    fail("FORGE_VGPU_NCCL_FAULT=" + text + ": legal is DEVICE:LAUNCH, the second from 1");
  return of == device ? launch : 0;
}

}  // namespace

NcclTurns::NcclTurns(int device, Memory& memory) : memory_(memory), self_{getpid(), device}, fault_(fault_of(device)) {
  using Order = Settings::Order;
  const Order order = settings().nccl_order;
  // All devices of a job must do the same.
  in_order_ = order == Order::by_seed ? settings().seed % 2 == 1 : order == Order::launch;
}

std::int64_t NcclTurns::launched(const void* work) {
  const std::lock_guard lock(mutex_);
  order_.push_back(work);
  return ++launched_;
}

void NcclTurns::ended(const void* work) {
  const std::lock_guard lock(mutex_);
  std::erase(order_, work);
}

bool NcclTurns::turn(const void* work) const {
  const std::lock_guard lock(mutex_);
  return !in_order_ || order_.front() == work;
}

void NcclTurns::know(const BoardMember& member, Board* board) {
  const std::lock_guard lock(mutex_);
  boards_[{member.process, member.device}] = board;
}

void NcclTurns::waits_for(std::uint64_t comm, const std::string& what, const std::vector<BoardMember>& missing) {
  if (!in_order_) return;
  waits_ = true;
  memory_.board().show(comm, what, missing);
  const std::string circle = search_.look(self_, [this](const BoardMember& m) -> const Board* {
    const std::lock_guard lock(mutex_);
    const auto found = boards_.find({m.process, m.device});
    return found == boards_.end() ? nullptr : found->second;
  });
  if (!circle.empty())
    fail("NCCL: devices wait for each other in a circle: their hosts have launched operations in different orders\n" +
         circle);
}

void NcclTurns::waits_for_nobody() {
  waits_ = false;
  memory_.board().clear();
}

}  // namespace vgpu
