#pragma once

#include <memory>
#include <vector>

#include "comm/mesh.hpp"
#include "device/arena.hpp"
#include "device/stream.hpp"
#include "layout/chunk_units.hpp"
#include "parallel/storage.hpp"

namespace forge {

// Gives layers the whole weights of a unit, gathered from the shard group in a stream of its own ahead of use:
//  ZeRO 0: they are there; 1 and 2: gathered once after each update; 3: gathered for each use into one of a few buffers
//  and dropped after it, or at the first use of a step where Zero::keep_gathered.
template <class T>
class ParameterGather {
 public:
  ParameterGather(Arena& arena, Stream& compute, const ParameterStorage<T>& storage, Mesh& mesh);

  // Whole weights of unit u, until release(u). Every rank of the group uses the same units in the same order.
  const T* use(Stream& compute, std::size_t u);
  void release(Stream& compute, std::size_t u);
  // Starts what use(u) would wait for; false where all buffers are taken.
  bool prefetch(Stream& compute, std::size_t u);
  // The state's copies have changed (in the compute stream).
  void changed(Stream& compute);
  // Throws what went wrong in the background.
  void finish();

 private:
  struct Place {
    View<T, 1> data;
    bool touched = false;  // `idle` was recorded
    Event idle;            // its last reader is through
  };

  void gather(Stream& compute, std::size_t u, View<T, 1> whole);

  // None where each whole unit has its own place.
  struct Pool {
    GatherPool pool;
    std::vector<Place> places;
  };

  UnitClass class_at(std::size_t u) const { return class_of(storage_.local(u)); }
  Pool& pool_at(std::size_t u) { return pools_[static_cast<std::size_t>(pool_of(storage_.local(u)))]; }
  Communicator& shards_of(std::size_t u) { return mesh_.parameter_shards(class_at(u) == UnitClass::experts); }
  // Whether the unit is ever gathered.
  bool is_gathered(std::size_t u) { return stream_ && shards_of(u).size() > 1; }

  const ParameterStorage<T>& storage_;
  Mesh& mesh_;
  std::unique_ptr<Stream> stream_;  // null: nothing is gathered
  Event ready_;                     // made once
  std::vector<Event> gathered_;     // by unit
  std::vector<char> posted_;        // by unit: gathered since the last change, where the whole unit has its own place
  std::array<Pool, pool_classes> pools_;
};

}  // namespace forge
