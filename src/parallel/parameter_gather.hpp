#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.hpp"
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
  ParameterGather(Arena& arena, Stream& compute, const ParameterStorage<T>& storage, Communicator& shards);

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

  const ParameterStorage<T>& storage_;
  Communicator& shards_;
  std::unique_ptr<Stream> stream_;  // null: nothing is gathered
  std::vector<Event> gathered_;     // by unit
  std::vector<char> posted_;        // by unit: gathered since the last change, where the whole unit has its own place
  GatherPool pool_;
  std::vector<Place> places_;  // of the pool
};

}  // namespace forge
