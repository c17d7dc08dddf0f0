#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "board.hpp"
#include "device.hpp"
#include "nccl_segment.hpp"

namespace vgpu {

// A rank's end of a communicator. Hosts call the public functions; works of streams (nccl_work.hpp) use the segment and
// the others' memory.
class Comm {
 public:
  // Collective: returns when all ranks have come. A problem, the same on every rank, leaves the communicator useless.
  Comm(Device& device, int ranks, const ncclUniqueId& id, int rank);

  const std::string& problem() const { return problem_; }
  Device& device() const { return device_; }
  int rank() const { return rank_; }
  int size() const { return segment_.ranks(); }
  Segment& segment() { return segment_; }
  RankSlot& slot(int rank) const { return segment_.slot(rank); }

  // Collective: the id, number and size of the caller's part; size 0 without a color.
  struct Part {
    ncclUniqueId id{};
    int rank = 0, size = 0;
  };
  Part split(int color, int key);

  // Connections are made at the first use: the host says that it is there, and once waits until the others' are.
  void show_collective();
  void connect_collectives();
  void show_transfer(int peer);
  void connect_transfer(int peer);

  void wait_for_works();
  // Collective: nobody's works are left, nobody uses the memory.
  void finish();
  // Ends the works and the waits of this rank, and those of others for it.
  void revoke();
  bool revoked() const { return revoked_; }

  // ---- works
  void launched() { ++pending_; }
  void completed() { --pending_; }
  std::uint64_t next_collective() { return ++collectives_; }
  // A device address of another rank, as this process sees it.
  char* peer_memory(int rank, std::uint64_t offset) const {
    return peers_[static_cast<std::size_t>(rank)].memory + offset;
  }
  BoardMember member(int rank) const;
  Board& board(int rank) const { return *peers_[static_cast<std::size_t>(rank)].board; }
  void ring_all() const;
  void ring(int rank) const;
  // Fails by itself, for whoever asks.
  void set_error(ncclResult_t error);
  ncclResult_t error() const;

 private:
  struct Peer {
    char* memory;
    Bell* bell;
    Board* board;
  };
  void join();
  std::string duplicates() const;
  void map_peers();
  void meet(const char* call);
  bool other_revoked() const;

  Device& device_;
  int rank_;
  Segment segment_;
  std::string problem_;
  std::vector<Peer> peers_;
  std::uint64_t meetings_ = 0, collectives_ = 0;
  bool collectives_connected_ = false;
  std::set<int> transfers_connected_;
  std::atomic<int> pending_{0};
  std::atomic<bool> revoked_{false};
};

// The memory file of a device of a process, mapped once in this one.
char* map_device(int process, int device, int file, std::size_t bytes);

}  // namespace vgpu
