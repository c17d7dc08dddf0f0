#include "block.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fail.hpp"
#include "settings.hpp"

// The indices of the thread that runs, in the words of CUDA.
#define VGPU_THREAD thread_local constinit __attribute__((tls_model("initial-exec")))
VGPU_THREAD uint3 threadIdx, blockIdx, blockDim, gridDim;
#undef VGPU_THREAD

namespace vgpu {

namespace {

uint3 index_of(std::uint64_t number, const uint3& extents) {
  return {static_cast<unsigned>(number % extents.x), static_cast<unsigned>(number / extents.x % extents.y),
          static_cast<unsigned>(number / extents.x / extents.y)};
}

}  // namespace

Block::Block(const Memory& memory, std::uint64_t seed) : memory_(memory), random_(seed) {
  void* p = mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail(std::string("no shared memory: ") + std::strerror(errno));
  shared_ = static_cast<char*>(p);
  view_.block = this;
  view_.memory = &memory;
  view_.races = &races_;
}

Block::~Block() {
  munmap(shared_, shared_bytes);
}

void Block::begin(const Grid& grid, ThreadOrder order) {
  grid_ = &grid;
  order_ = order;
  view_.parameters = reinterpret_cast<std::uintptr_t>(grid.kernel.parameters);
  view_.parameter_bytes = grid.kernel.parameter_bytes;
  view_.live = {};
  view_.shared = {reinterpret_cast<std::uintptr_t>(shared_), grid.dynamic_shared};
  arrays_.clear();
  shared_used_ = (grid.dynamic_shared + 127) / 128 * 128;
  if (blockDim.x != grid.threads.x || blockDim.y != grid.threads.y || threads_.size() != grid.block_size()) {
    threads_.resize(grid.block_size());
    for (std::size_t i = 0; i < threads_.size(); ++i) threads_[i].index = index_of(i, grid.threads);
  }
  meetings_.resize((grid.block_size() + 31) / 32);
  blockDim = grid.threads;
  gridDim = grid.blocks;
}

void Block::end() {
  for (const auto& fiber : fibers_)
    if (!fiber->intact())
      fail("kernel " + grid_->name + ": a thread has used more than " + std::to_string(Fiber::stack_bytes) +
           " bytes of stack");
  grid_ = nullptr;
  current_ = -1;
}

void Block::run(std::uint64_t number) {
  blockIdx = index_of(number, grid_->blocks);
  poison_shared();
  const int n = static_cast<int>(threads_.size());
  fresh_.resize(threads_.size());
  for (int i = 0; i < n; ++i) {
    threads_[static_cast<std::size_t>(i)].state = State::fresh;
    fresh_[static_cast<std::size_t>(i)] = order_ == ThreadOrder::forwards ? n - 1 - i : i;
  }
  if (order_ == ThreadOrder::shuffled)
    for (std::size_t i = fresh_.size() - 1; i > 0; --i) std::swap(fresh_[i], fresh_[random_.below(i + 1)]);
  at_barrier_ = done_ = 0;
  last_barrier_ = {};
  mbarriers_.clear();
  races_.begin(threads_.size());
  kernel_view = &view_;
  go_on(next());
  kernel_view = nullptr;
}

// ---- threads and fibers

void Block::run_fiber() {
  while (true) {
    kernel_view->block->run_thread();
    kernel_view->block->end_thread();
  }
}

void Block::run_thread() {
  grid_->kernel.call(grid_->kernel.parameters);
}

// The fiber is free: for a thread that hasn't run, or until there is one.
void Block::end_thread() {
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  if (!thread.copies.empty()) fail(place() + " ends with asynchronous copies that it hasn't waited for");
  thread.state = State::done;
  thread.groups = 0;
  ++done_;
  if (at_barrier_ > 0) fail(place() + " has ended while others wait at a barrier: " + waiting_text());
  idle_.push_back(running_);
  if (done_ < threads_.size()) return go_on(next());
  Fiber& from = *running_;
  running_ = &home_;
  Fiber::change(from, home_);
}

void Block::go_on(int thread) {
  Thread& t = threads_[static_cast<std::size_t>(thread)];
  if (t.state == State::fresh) t.fiber = idle_fiber();
  t.state = State::running;
  current_ = thread;
  Fiber& from = *running_;
  running_ = t.fiber;
  view_.stack = t.fiber->stack();
  races_.set_thread(thread);
  threadIdx = t.index;
  if (&from != running_) Fiber::change(from, *running_);
}

void Block::wait(State state, const Place& place) {
  Thread& t = threads_[static_cast<std::size_t>(current_)];
  t.state = state;
  t.place = place;
  go_on(next());
}

int Block::next() {
  std::vector<int>& from = ready_.empty() ? fresh_ : ready_;
  if (from.empty()) fail(place() + ": no thread of the block can go on: " + waiting_text());
  const int thread = from.back();
  from.pop_back();
  return thread;
}

// Those that are ready go in the order of the block, behind the one that made them so.
void Block::make_ready(int thread) {
  threads_[static_cast<std::size_t>(thread)].state = State::ready;
  ready_.push_back(thread);
  if (order_ == ThreadOrder::shuffled) std::swap(ready_.back(), ready_[random_.below(ready_.size())]);
}

Fiber* Block::idle_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(run_fiber, fibers_.size()));
    return fibers_.back().get();
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

// ---- where threads meet

void Block::barrier(const char* file, int line) {
  const Place here{file, line};
  if (done_ > 0) fail(place() + " waits at the barrier " + text_of(here) + ", but other threads have ended");
  if (at_barrier_ == 0) barrier_ = here;
  if (!(barrier_ == here))
    fail(place() + " waits at the barrier " + text_of(here) + ", other threads at " + text_of(barrier_));
  if (++at_barrier_ < threads_.size()) return wait(State::barrier, here);
  at_barrier_ = 0;
  last_barrier_ = here;
  races_.barrier();
  const int n = static_cast<int>(threads_.size());
  for (int i = 0; i < n; ++i) {
    const int thread = order_ == ThreadOrder::forwards ? n - 1 - i : i;
    if (thread != current_) make_ready(thread);
  }
}

Block::Mbarrier& Block::mbarrier_at(const void* barrier, const char* what) {
  const auto found = mbarriers_.find(barrier);
  if (found == mbarriers_.end()) fail(place() + ' ' + what + " what is no mbarrier: mbarrier.init makes one");
  if (!races_.access(offset_of(barrier), 8, Access::read)) fail_of_race(barrier, 8, Access::read);
  return found->second;
}

void Block::mbarrier_init(const void* barrier, unsigned count) {
  if (!in_shared_array(reinterpret_cast<std::uintptr_t>(barrier), 8) ||
      reinterpret_cast<std::uintptr_t>(barrier) % 8 != 0)
    fail(place() + ": an mbarrier is not in shared memory, or not aligned to 8 bytes");
  races_.use_mbarriers();
  if (!races_.access(offset_of(barrier), 8, Access::write)) fail_of_race(barrier, 8, Access::write);
  mbarriers_[barrier] = {count, count, 0, {}, {}};
}

void Block::mbarrier_arrive(const void* barrier) {
  Mbarrier& b = mbarrier_at(barrier, "arrives at");
  races_.arrive(b.arrivals);
  if (--b.pending > 0) return;
  b.pending = b.count;
  ++b.phases;
  for (const int thread : b.waiting) make_ready(thread);
  b.waiting.clear();
}

// Until the phase of that parity has ended: phases are 0, 1, 0 and so on, and before the first one a 1 has ended.
void Block::mbarrier_wait(const void* barrier, unsigned parity, const char* file, int line) {
  Mbarrier& b = mbarrier_at(barrier, "waits for");
  while (b.phases % 2 == parity) {
    b.waiting.push_back(current_);
    wait(State::mbarrier, {file, line});
  }
  races_.wait(b.arrivals);
}

unsigned Block::lanes_of(unsigned warp) const {
  const std::size_t lanes = std::min<std::size_t>(32, threads_.size() - 32 * std::size_t{warp});
  return lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
}

Block::Meeting& Block::meeting_of(const VgpuWarpOperation& operation, unsigned warp, unsigned mask, const Place& here) {
  auto& meetings = meetings_[warp];
  // Mostly there is one, of all lanes; masks that have no lane in common may meet side by side.
  if (!meetings.empty()) {
    Meeting& m = *meetings.front();
    if (m.arrived != 0 && m.lanes.mask == mask && m.compute == operation.compute && m.place == here) return m;
  }
  for (const auto& m : meetings) {
    if (m->arrived == 0 || (m->lanes.mask & mask) == 0) continue;
    if (m->lanes.mask != mask || m->compute != operation.compute || !(m->place == here))
      fail(place() + " comes to " + operation.name + " " + text_of(here) + ", other lanes of its mask to " + m->name +
           " " + text_of(m->place) + "; all lanes of a mask must meet in one operation");
    return *m;
  }
  auto free = std::find_if(meetings.begin(), meetings.end(), [](const auto& m) { return m->arrived == 0; });
  if (free == meetings.end()) free = meetings.insert(meetings.end(), std::make_unique<Meeting>());
  Meeting& m = **free;
  m.name = operation.name;
  m.compute = operation.compute;
  m.place = here;
  m.lanes.mask = mask;
  return m;
}

void Block::release_lanes(unsigned warp, unsigned mask) {
  for (int i = 0; i < 32; ++i) {
    const int lane = order_ == ThreadOrder::forwards ? 31 - i : i, thread = static_cast<int>(32 * warp) + lane;
    if ((mask >> lane & 1u) && thread != current_) make_ready(thread);
  }
}

void Block::warp(const VgpuWarpOperation& operation, unsigned mask, const std::uint32_t* in, std::uint32_t* out,
                 const char* file, int line) {
  const unsigned warp = static_cast<unsigned>(current_) / 32, lane = static_cast<unsigned>(current_) % 32;
  const Place here{file, line};
  if (!(mask >> lane & 1u))
    fail(place() + ": the mask of " + operation.name + " " + text_of(here) + " leaves out the lane that calls it");
  mask &= lanes_of(warp);
  Meeting& m = meeting_of(operation, warp, mask, here);
  for (int i = 0; i < operation.in; ++i) m.lanes.in[lane][i] = in[i];
  m.results[lane] = out;
  m.arrived |= 1u << lane;
  if (m.arrived != mask) return wait(State::warp, here);
  view_.lanes = reinterpret_cast<std::uintptr_t>(&m.lanes);
  operation.compute(&m.lanes);
  view_.lanes = 0;
  races_.set_thread(current_);
  if (operation.orders) races_.warp(warp, mask, mask == lanes_of(warp));
  m.arrived = 0;
  // Now, as other lanes may meet again before all of these have gone on.
  for (unsigned l = 0; l < 32; ++l)
    if (mask >> l & 1u)
      for (int i = 0; i < operation.out; ++i) m.results[l][i] = m.lanes.out[l][i];
  release_lanes(warp, mask);
}

}  // namespace vgpu
