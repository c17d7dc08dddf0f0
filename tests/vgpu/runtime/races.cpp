#include "races.hpp"

#include <algorithm>
#include <bit>

namespace vgpu {

// ---- time

void SharedRaces::move_on() {
  if (++now_ < end_of_time) return;
  // The count starts again, and what came before is forgotten.
  std::fill(words_.begin(), words_.end(), Cell{});
  std::fill(bytes_.begin(), bytes_.end(), Cell{});
  std::fill(quick_.begin(), quick_.end(), 0);
  std::fill(warps_.begin(), warps_.end(), 0);
  std::fill(waited_.begin(), waited_.end(), 0);
  std::fill(reads_.begin(), reads_.end(), Reads{});
  pairs_.clear();
  history_.clear();
  now_ = barrier_ = 1;
}

void SharedRaces::begin(std::size_t threads) {
  alone_ = threads == 1;
  warps_.resize((threads + 31) / 32);
  pairs_.clear();
  waited_.clear();
  thread_ = 0;
  barrier();
}

void SharedRaces::barrier() {
  move_on();
  barrier_ = now_;
  history_.clear();
  all_key_ = key(barrier_, all_warps);
  set_thread(thread_);
}

void SharedRaces::warp(unsigned warp, unsigned mask, bool all) {
  move_on();
  if (all) {
    warps_[warp] = now_;
    set_thread(thread_);
    for (std::size_t w = 0; w < warps_.size() && !waited_.empty(); ++w) {
      // Each lane is now behind all that one of them has waited for.
      const auto row = [&](std::size_t lane) { return (std::size_t{warp} * 32 + lane) * warps_.size() + w; };
      Time latest = 0;
      for (std::size_t lane = 0; lane < 32; ++lane) latest = std::max(latest, waited_[row(lane)]);
      for (std::size_t lane = 0; lane < 32; ++lane) waited_[row(lane)] = latest;
    }
    return;
  }
  pairs_.resize(warps_.size() * 32 * 32);
  set_thread(thread_);
  const int first = static_cast<int>(warp) * 32;
  // Each lane of the mask has now met whom any of them had met, and the others of the mask.
  for (int lane = 0; lane < 32; ++lane) {
    Time latest = mask >> lane & 1u ? now_ : 0;
    for (int l = 0; l < 32; ++l)
      if (mask >> l & 1u) latest = std::max(latest, met(first + l, lane));
    for (int l = 0; l < 32; ++l)
      if (mask >> l & 1u) met(first + l, lane) = latest;
  }
}

// ---- mbarriers

void SharedRaces::use_mbarriers() {
  if (!waited_.empty()) return;
  waited_.assign(warps_.size() * 32 * warps_.size(), 0);
  reads_.assign(words_.size() * warps_.size(), {});
  std::fill(quick_.begin(), quick_.end(), 0);
}

// Stands for what the thread's warp did before its lanes met last, and for what the thread is ordered behind itself.
void SharedRaces::arrive(Arrivals& arrivals) const {
  arrivals.resize(warps_.size());
  const std::size_t own = static_cast<std::size_t>(thread_) / 32;
  for (std::size_t w = 0; w < warps_.size(); ++w)
    arrivals[w] = std::max(arrivals[w], w == own ? warps_[w] : waited(thread_, static_cast<int>(w)));
}

void SharedRaces::wait(const Arrivals& arrivals) {
  for (std::size_t w = 0; w < arrivals.size(); ++w) {
    Time& known = waited(thread_, static_cast<int>(w));
    known = std::max(known, arrivals[w]);
  }
}

bool SharedRaces::access_with_mbarriers(std::size_t word, Access kind) {
  Cell& c = words_[word];
  if (!ordered(c.writer, c.written, thread_)) return found(c.writer, "written");
  const std::size_t own = static_cast<std::size_t>(thread_) / 32, warps = warps_.size();
  const std::uint32_t lane = 1u << thread_ % 32;
  Reads* reads = &reads_[word * warps];
  if (only_reads(kind)) {
    Reads& r = reads[own];
    r.lanes = (r.when < std::max(barrier_, warps_[own]) ? 0 : r.lanes) | lane;
    r.when = now_;
    return true;
  }
  for (std::size_t w = 0; w < warps; ++w) {
    const Reads& r = reads[w];
    const std::uint32_t others = w == own ? r.lanes & ~lane : r.lanes;
    if (r.when < barrier_ || others == 0) continue;
    if (r.when < (w == own ? warps_[w] : waited(thread_, static_cast<int>(w)))) continue;
    return found(static_cast<int>(32 * w) + std::countr_zero(others), "read");
  }
  c.written = now_;
  c.writer = static_cast<std::uint16_t>(thread_);
  return true;
}

// ---- accesses

namespace {

const char* text_of(Access kind) {
  return kind == Access::read ? "read" : kind == Access::atomic_load ? "loaded" : "changed by an atomic operation";
}

// Whether two that touch the same byte, in any order and without writing to it, don't race.
bool agree(Access a, Access b) {
  if (a == Access::write || b == Access::write) return false;
  if (a == Access::atomic_load || b == Access::atomic_load) return true;
  return a == b;
}

}  // namespace

bool SharedRaces::found(int thread, const char* what, bool copies) {
  race_ = {thread, what, copies};
  return false;
}

bool SharedRaces::begin_copy(std::size_t offset, std::size_t bytes) {
  if (!access(offset, bytes, Access::write)) return false;
  std::fill_n(&copied_by_[offset / 4], bytes / 4, static_cast<std::uint16_t>(thread_));
  copies_ += bytes / 4;
  return true;
}

bool SharedRaces::end_copy(std::size_t offset, std::size_t bytes) {
  std::fill_n(&copied_by_[offset / 4], bytes / 4, nobody);
  copies_ -= bytes / 4;
  return access(offset, bytes, Access::write);
}

void SharedRaces::forget_ordered(Cell& c) const {
  if (c.lanes == 0) return;
  if (c.touched < barrier_) {
    c.lanes = 0;
    c.several = 0;
    return;
  }
  // Of several warps `lanes` are one's; the others stay until a barrier.
  if (c.warp != thread_ / 32) return;
  if (c.touched < warps_[c.warp]) {
    c.lanes = 0;
  } else {
    c.lanes &= ~(1u << thread_ % 32);
    if (!pairs_.empty())
      for (int lane = 0; lane < 32; ++lane)
        if (c.touched < met(thread_, lane)) c.lanes &= ~(1u << lane);
  }
}

void SharedRaces::touch(Cell& c, bool atomic) const {
  c.atomic = atomic;
  if (c.lanes == 0 && !c.several) {
    c.touched = now_;
    c.warp = static_cast<std::uint16_t>(thread_ / 32);
  } else if (c.warp != thread_ / 32) {
    c.several = 1;
    return;
  }
  c.lanes |= 1u << thread_ % 32;
}

bool SharedRaces::access_history(const Cell& c, Access kind) {
  const auto before = history_.find(&c);
  if (before != history_.end()) {
    for (const Touch& t : before->second)
      if (!agree(t.kind, kind) && !ordered(t.thread, t.when, thread_)) return found(t.thread, text_of(t.kind));
    if (kind == Access::write) history_.erase(before);
  }
  if (kind == Access::write || (kind != Access::atomic_load && pairs_.empty())) return true;
  std::vector<Touch>& touches = history_[&c];
  const auto same = std::find_if(touches.begin(), touches.end(),
                                 [&](const Touch& t) { return t.thread == thread_ && t.kind == kind; });
  if (same != touches.end())
    same->when = now_;
  else
    touches.push_back({static_cast<std::uint16_t>(thread_), kind, now_});
  return true;
}

bool SharedRaces::access_cell(Cell& c, Access kind) {
  if (!ordered(c.writer, c.written, thread_)) return found(c.writer, "written");
  const bool one_by_one = !pairs_.empty() || kind == Access::atomic_load;
  if ((one_by_one || !history_.empty()) && !access_history(c, kind)) return false;
  if (kind == Access::atomic_load) return true;
  const Cell before = c;
  forget_ordered(c);
  const bool kept = c.lanes != 0 || c.several;
  const bool atomic = kind == Access::atomic;
  if (kept && (kind == Access::write || atomic != static_cast<bool>(c.atomic))) {
    const int lane = std::countr_zero(c.lanes != 0 ? c.lanes : before.lanes);
    return found(c.warp * 32 + lane, c.atomic ? "changed by an atomic operation" : "read");
  }
  // Atomic operations that are ordered before this are writes.
  if (before.atomic && before.lanes != 0 && !atomic) {
    c.written = before.touched;
    c.writer = static_cast<std::uint16_t>(before.warp * 32 + std::countr_zero(before.lanes));
  }
  if (kind == Access::write) {
    c.written = now_;
    c.writer = static_cast<std::uint16_t>(thread_);
  } else if (!one_by_one) {
    touch(c, atomic);
  }
  return true;
}

void SharedRaces::remember_readers(std::size_t word) {
  const Cell& c = words_[word];
  if (c.split || c.atomic || c.touched < barrier_) return;
  const Time since = std::max(barrier_, warps_[std::size_t{c.warp}]);
  if (c.several && c.written < barrier_)
    quick_[word] = all_key_;
  else if (std::popcount(c.lanes) > 1 && !c.several && c.written < since && pairs_.empty())
    quick_[word] = key(since, c.warp);
}

bool SharedRaces::access_slowly(std::size_t offset, std::size_t bytes, Access kind) {
  if (copies_ > 0)
    for (std::size_t w = offset / 4; w < (offset + bytes + 3) / 4; ++w)
      if (copied_by_[w] != nobody) return found(copied_by_[w], "copied to", true);
  bool good = true;
  if (!waited_.empty()) {
    for (std::size_t w = offset / 4; w < (offset + bytes + 3) / 4; ++w) good = access_with_mbarriers(w, kind) && good;
    return good;
  }
  if ((offset | bytes) % 4 != 0) return access_bytes(offset, bytes, kind);
  for (std::size_t w = offset / 4; w < (offset + bytes) / 4; ++w) good = access_word(w, kind) && good;
  return good;
}

bool SharedRaces::access_word(std::size_t word, Access kind) {
  if (words_[word].split) return access_split(word, kind);
  const bool good = access_cell(words_[word], kind);
  if (kind == Access::read) remember_readers(word);
  return good;
}

bool SharedRaces::access_split(std::size_t word, Access kind) {
  Cell* bytes = &bytes_[4 * word];
  bool good = true;
  for (int i = 0; i < 4; ++i) good = access_cell(bytes[i], kind) && good;
  if (kind == Access::write && good) words_[word] = bytes[0];  // all four are alike again
  return good;
}

void SharedRaces::split(std::size_t word) {
  std::fill_n(&bytes_[4 * word], 4, words_[word]);
  if (const auto touches = history_.find(&words_[word]); touches != history_.end()) {
    const std::vector<Touch> of_each = touches->second;
    history_.erase(touches);
    for (std::size_t i = 0; i < 4; ++i) history_[&bytes_[4 * word + i]] = of_each;
  }
  words_[word].split = 1;
}

bool SharedRaces::access_bytes(std::size_t offset, std::size_t bytes, Access kind) {
  bool good = true;
  for (std::size_t i = offset; i < offset + bytes; ++i) {
    if (!words_[i / 4].split) split(i / 4);
    good = access_cell(bytes_[i], kind) && good;
  }
  return good;
}

}  // namespace vgpu
