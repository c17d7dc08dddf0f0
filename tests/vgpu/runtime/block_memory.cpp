#include <algorithm>
#include <cstring>

#include "block.hpp"
#include "fail.hpp"
#include "settings.hpp"

// The shared memory of a block, asynchronous copies to it, and what messages say of a thread.

namespace vgpu {

void Block::poison_shared() {
  std::memset(shared_, poison(), shared_used_);
}

void* Block::shared_array(const void* site, std::size_t bytes, std::size_t alignment) {
  for (const SharedArray& a : arrays_)
    if (a.site == site) return shared_ + a.begin;
  // A gap behind each, which is nobody's.
  const std::size_t gap = 32, begin = (shared_used_ + alignment - 1) / alignment * alignment;
  std::size_t all = bytes;
  for (const SharedArray& a : arrays_) all += a.bytes;
  if (all > Settings::shared_default)
    fail(place() + ": " + std::to_string(all) + " bytes of shared arrays; a block has " +
         std::to_string(Settings::shared_default));
  if (all + grid_->dynamic_shared > settings().shared_limit())
    fail(place() + ": shared arrays of " + std::to_string(all) + " bytes and " + std::to_string(grid_->dynamic_shared) +
         " of the launch; a block has " + std::to_string(settings().shared_limit()));
  shared_used_ = begin + bytes + gap;
  if (shared_used_ > shared_bytes) fail(place() + ": too many shared arrays");
  arrays_.push_back({site, begin, bytes});
  std::memset(shared_ + begin, poison(), bytes);
  return shared_ + begin;
}

void* Block::dynamic_shared() {
  return shared_;
}

bool Block::in_shared_array(std::uintptr_t address, std::size_t bytes) const {
  const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(shared_);
  if (offset >= shared_bytes) return false;
  if (offset + bytes <= grid_->dynamic_shared) return true;
  return std::any_of(arrays_.begin(), arrays_.end(),
                     [&](const SharedArray& a) { return offset >= a.begin && offset + bytes <= a.begin + a.bytes; });
}

bool Block::is_shared(std::uintptr_t address) const {
  return address - reinterpret_cast<std::uintptr_t>(shared_) < shared_bytes;
}

bool Block::is_local(std::uintptr_t address) const {
  return std::any_of(fibers_.begin(), fibers_.end(),
                     [&](const auto& fiber) { return address - fiber->stack() < Fiber::stack_bytes; });
}

// ---- asynchronous copies

void Block::copy_async(void* to, const void* from, std::size_t bytes, std::size_t read) {
  const auto wrong = [&](const std::string& what) { fail(place() + ": an asynchronous copy " + what); };
  if (bytes != 4 && bytes != 8 && bytes != 16) wrong("of " + std::to_string(bytes) + " bytes; legal are 4, 8 and 16");
  if (read > bytes) wrong("reads more than it writes");
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 || reinterpret_cast<std::uintptr_t>(from) % bytes != 0)
    wrong("of " + std::to_string(bytes) + " bytes between addresses that aren't multiples of it");
  if (!in_shared_array(reinterpret_cast<std::uintptr_t>(to), bytes)) wrong("to what isn't shared memory");
  if (read > 0 && device_of(from) < 0) wrong("from what isn't device memory");
  Thread& t = threads_[static_cast<std::size_t>(current_)];
  if (read > 0) check_access(reinterpret_cast<std::uintptr_t>(from), read, Access::read);
  t.copies.push_back({to, from, bytes, read, t.groups});
  if (!races_.begin_copy(offset_of(to), bytes)) fail_of_race(to, bytes, Access::write);
}

void Block::copy_async_commit() {
  ++threads_[static_cast<std::size_t>(current_)].groups;
}

std::size_t Block::offset_of(const void* shared) const {
  return static_cast<std::size_t>(static_cast<const char*>(shared) - shared_);
}

// A copy is seen when its group has been waited for, not before.
void Block::copy_async_wait(int pending) {
  Thread& t = threads_[static_cast<std::size_t>(current_)];
  const int landed = t.groups - pending;
  for (const AsyncCopy& c : t.copies) {
    if (c.group >= landed) continue;
    if (!races_.end_copy(offset_of(c.to), c.bytes)) fail_of_race(c.to, c.bytes, Access::write);
    std::memcpy(c.to, c.from, c.read);
    std::memset(static_cast<char*>(c.to) + c.read, 0, c.bytes - c.read);
  }
  std::erase_if(t.copies, [&](const AsyncCopy& c) { return c.group < landed; });
}

// ---- messages

std::string Block::text_of(const Place& place) {
  const std::string file = place.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(place.line);
}

std::string Block::place() const {
  return "kernel " + grid_->name + ", block " + text_of(blockIdx) + ", thread " + text_of(threadIdx);
}

std::string Block::text_of(const uint3& i) {
  return "(" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
}

void Block::fail_of_race(const void* address, std::size_t bytes, Access kind) const {
  const std::size_t offset = offset_of(address);
  std::string where = std::to_string(offset) + " of the dynamic shared memory";
  for (const SharedArray& a : arrays_)
    if (offset >= a.begin && offset < a.begin + a.bytes)
      where = std::to_string(offset - a.begin) + " of a shared array of " + std::to_string(a.bytes) + " bytes";
  const char* verb = kind == Access::read          ? "reads"
                     : kind == Access::write       ? "writes"
                     : kind == Access::atomic_load ? "loads"
                                                   : "changes by an atomic operation";
  const auto thread = [&](int i) { return "thread " + text_of(threads_[static_cast<std::size_t>(i)].index); };
  const SharedRaces::Race& race = races_.race();
  const std::string what = "kernel " + grid_->name + ", block " + text_of(blockIdx) +
                           ": a race in shared memory: " + thread(races_.thread()) + " " + verb + " " +
                           std::to_string(bytes) + " bytes at offset " + where;
  if (race.copies)
    fail(what + ", where an asynchronous copy of " + thread(race.thread) +
         " goes that hasn't been waited for; no barrier orders the two");
  fail(what + ", which " + thread(race.thread) + " has " + race.what + " since " +
       (last_barrier_.file ? "the barrier " + text_of(last_barrier_) : std::string("the block began")) +
       "; nothing orders the two");
}

// "threads 0 to 31 at a.cpp:7, 32 to 63 have ended", by the first threads of each kind.
std::string Block::waiting_text() const {
  const auto state_of = [](const Thread& t) {
    switch (t.state) {
      case State::done:
        return std::string("has ended");
      case State::barrier:
        return "waits at the barrier " + text_of(t.place);
      case State::mbarrier:
        return "waits for the mbarrier at " + text_of(t.place);
      case State::warp:
        return "waits for lanes of its warp at " + text_of(t.place);
      default:
        return std::string("could run");
    }
  };
  std::string text, last;
  for (std::size_t i = 0; i < threads_.size() && text.size() < 500; ++i) {
    const std::string state = state_of(threads_[i]);
    if (state != last) text += (text.empty() ? "thread " : ", from thread ") + std::to_string(i) + " on " + state;
    last = state;
  }
  return text;
}

}  // namespace vgpu

// ---- what kernels call
extern "C" {

namespace {

vgpu::Block& block_here(const char* what) {
  if (!vgpu::kernel_view) vgpu::fail(std::string(what) + " outside of a kernel");
  return *vgpu::kernel_view->block;
}

}  // namespace

void vgpu_fail(const char* what) {
  vgpu::fail(block_here(what).place() + ": " + what);
}
void vgpu_barrier(const char* file, int line) {
  block_here("a barrier").barrier(file, line);
}
void vgpu_warp(const VgpuWarpOperation* operation, unsigned mask, const std::uint32_t* in, std::uint32_t* out,
               const char* file, int line) {
  block_here(operation->name).warp(*operation, mask, in, out, file, line);
}
void vgpu_mbarrier_init(const void* barrier, unsigned count) {
  block_here("an mbarrier").mbarrier_init(barrier, count);
}
void vgpu_mbarrier_arrive(const void* barrier) {
  block_here("an mbarrier").mbarrier_arrive(barrier);
}
void vgpu_mbarrier_wait(const void* barrier, unsigned parity, const char* file, int line) {
  block_here("an mbarrier").mbarrier_wait(barrier, parity, file, line);
}
void* vgpu_shared(const void* site, std::size_t bytes, std::size_t alignment) {
  return block_here("a shared array").shared_array(site, bytes, alignment);
}
void* vgpu_dynamic_shared() {
  return block_here("shared memory").dynamic_shared();
}
bool vgpu_is_shared(const void* p) {
  return block_here("a question about addresses").is_shared(reinterpret_cast<std::uintptr_t>(p));
}
void vgpu_lane(int lane) {
  block_here("a lane").set_lane(lane);
}
void vgpu_copy_async(void* to, const void* from, std::size_t bytes, std::size_t read) {
  block_here("an asynchronous copy").copy_async(to, from, bytes, read);
}
void vgpu_copy_async_commit() {
  block_here("a group of copies").copy_async_commit();
}
void vgpu_copy_async_wait(int pending) {
  block_here("a wait for copies").copy_async_wait(pending);
}

}  // extern "C"
