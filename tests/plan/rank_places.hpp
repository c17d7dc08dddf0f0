#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "config/deck.hpp"

namespace forge::test {

// Where ranks stand: coordinates in both views, the slowest axis first.
class Places {
 public:
  enum Dense { pp, replicate, shard, cp, tp };
  enum Expert { stage, slow, fast, ep, etp };

  explicit Places(const MeshDeck& m) {
    const std::int64_t shards = m.dp_shard * m.cp * m.tp, spread = m.ep * m.etp;
    const std::int64_t copies = m.dp_replicate * shards / spread;
    expert_shards = shards % spread == 0 ? shards / spread : 1;
    dense_ = {m.pp, m.dp_replicate, m.dp_shard, m.cp, m.tp};
    expert_ = {m.pp, copies / expert_shards, expert_shards, m.ep, m.etp};
  }
  std::int64_t expert_shards;
  std::int64_t expert_copies() const { return expert_[slow] * expert_[fast]; }
  int world() const {
    return static_cast<int>(std::accumulate(dense_.begin(), dense_.end(), std::int64_t{1}, std::multiplies<>()));
  }

  std::int64_t dense(int rank, Dense axis) const { return coordinates(dense_, rank)[axis]; }
  std::int64_t expert(int rank, Expert axis) const { return coordinates(expert_, rank)[axis]; }

  // Ranks that differ from this one in these axes only.
  std::vector<int> group(int rank, std::initializer_list<Dense> axes) const { return along(dense_, rank, axes); }
  std::vector<int> group(int rank, std::initializer_list<Expert> axes) const { return along(expert_, rank, axes); }

 private:
  using Five = std::array<std::int64_t, 5>;
  static Five coordinates(const Five& extents, std::int64_t rank) {
    Five at{};
    for (std::size_t axis = 5; axis-- > 0; rank /= extents[axis]) at[axis] = rank % extents[axis];
    return at;
  }
  template <class Axis>
  std::vector<int> along(const Five& extents, int rank, std::initializer_list<Axis> axes) const {
    Five fixed = coordinates(extents, rank);
    for (const Axis axis : axes) fixed[axis] = -1;
    std::vector<int> ranks;
    for (int other = 0; other < world(); ++other) {
      const Five at = coordinates(extents, other);
      bool same = true;
      for (std::size_t axis = 0; axis < 5; ++axis) same = same && (fixed[axis] < 0 || at[axis] == fixed[axis]);
      if (same) ranks.push_back(other);
    }
    return ranks;
  }

  Five dense_, expert_;
};

}  // namespace forge::test
