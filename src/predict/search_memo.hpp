#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "predict/search_bounds.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"

namespace forge {

// Lowered schedules, each made once.
class Schedules {
 public:
  Schedule of(const Deck& deck) {
    const int pp = static_cast<int>(deck.mesh.pp), microbatches = static_cast<int>(microbatches_of(deck));
    const auto key = std::tuple(deck.schedule.name, deck.schedule.virtual_stages, pp, microbatches, deck.train.overlap);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = known_.find(key); found != known_.end()) return found->second;
    }
    Schedule made = lower(schedule_of(deck, pp, microbatches));
    const std::lock_guard lock(mutex_);
    return known_.emplace(key, std::move(made)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<ScheduleName, std::int64_t, int, int, Overlap>, Schedule> known_;
};

// Choices without room. On one mesh with one schedule, dispatch and overlap, memory falls with the ZeRO stage and with
// more recomputation, and grows with the microbatch.
class Rooms {
 public:
  bool is_full(const Candidate& c) {
    const std::lock_guard lock(mutex_);
    const auto& list = full_[key_of(c)];
    return std::any_of(list.begin(), list.end(), [&](const Choice& full) {
      return c.choice.microbatch >= full.microbatch && c.choice.zero_stage <= full.zero_stage &&
             full.recompute.includes(c.choice.recompute);
    });
  }
  void set_full(const Candidate& c) {
    const std::lock_guard lock(mutex_);
    full_[key_of(c)].push_back(c.choice);
  }
  // Bytes of the choice that needs least on the mesh of a candidate with its schedule, dispatch and overlap, by `bytes`
  // where they aren't known yet; none: it isn't legal.
  template <class F>
  std::optional<std::size_t> least(const Candidate& c, const F& bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = least_.find(key_of(c)); found != least_.end()) return found->second;
    }
    const std::optional<std::size_t> made = bytes(c);
    const std::lock_guard lock(mutex_);
    return least_[key_of(c)] = made;
  }

 private:
  using Key = std::tuple<std::size_t, ScheduleName, std::int64_t, DispatchMethod, Overlap>;
  static Key key_of(const Candidate& c) {
    return {c.mesh, c.choice.schedule, c.choice.chunks, c.choice.dispatch, c.choice.overlap};
  }
  std::mutex mutex_;
  std::map<Key, std::vector<Choice>> full_;
  std::map<Key, std::optional<std::size_t>> least_;
};

}  // namespace forge
