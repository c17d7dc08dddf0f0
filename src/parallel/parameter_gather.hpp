#pragma once

#include <span>
#include <vector>

#include "comm/mesh.hpp"
#include "device/arena.hpp"
#include "device/side_stream.hpp"
#include "parallel/fp8/coded_gather.hpp"
#include "parallel/storage.hpp"
#include "plan/setup.hpp"

namespace forge {

// Gives layers the whole weights of a unit, gathered from the shard group in a stream of its own:
//  ZeRO 0: they are there; 1 and 2: gathered once after each update; 3: gathered for each use into one of a few buffers
//  and dropped after it, or at the first use of a step where Zero::keep_gathered. plan/tasks.hpp says when and
//  where.
template <class T>
class ParameterGather {
 public:
  ParameterGather(Arena& arena, Stream& compute, ParameterStorage<T>& storage, Mesh& mesh, const RunSetup& setup,
                  const AmaxHistory& history);

  // Starts gathering unit u: into a buffer of its pool, or (-1) into its own. Every rank of the group calls it for the
  // same units in the same order.
  void gather(Stream& compute, std::size_t u, int buffer);
  // Work given to `compute` from here on sees the gathered weights; release(): it doesn't read them any more.
  void wait(Stream& compute, std::size_t u, int buffer);
  void release(std::size_t u, int buffer) {
    RankUnit<T>& unit = storage_.unit(u);
    unit.gathered_weights[track_of(unit, buffer)] = nullptr;
  }
  // Takes the amaxes of weights that products round: behind every change of the weights, and collective.
  void take_amaxes(Stream& compute) { coded_.take_amaxes(compute, storage_, mesh_); }
  CodedGather<T>& coded() { return coded_; }
  // For a rank without its peers: draws initial values into whole units, and into the buffers that units share, one
  // unit's for all alike, and returns that memory. Units that travel as codes are left out.
  std::vector<std::span<const std::byte>> draw_gathered(Stream& compute, std::uint64_t seed);
  // Throws errors of work in the background.
  void finish();

 private:
  View<T, 1> target(const RankUnit<T>& unit, int buffer) const;
  // Of passes that run at once, the one that has a buffer.
  std::size_t track_of(const RankUnit<T>& unit, int buffer) const {
    return buffer >= 0 && 2 * buffer >= std::ssize(pools_[to_size(pool_of(unit.local))]) && unit.local.zero.tracks > 1;
  }

  ParameterStorage<T>& storage_;
  Mesh& mesh_;
  CodedGather<T> coded_;
  SideStream stream_;  // none: nothing is gathered
  std::array<std::vector<View<T, 1>>, pool_classes> pools_;
};

}  // namespace forge
