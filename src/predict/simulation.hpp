#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace forge {

// A discrete simulation of ranks that each have a host, which walks a list of instructions, and streams, which run the
// host's work in order. It knows nothing of models: predict/step_program.hpp writes the lists.

// The streams of a rank, as the executor has them.
enum class Lane : std::uint8_t { compute, parameters, gradients, transfers, exchanges };
inline constexpr int lane_count = 5;

// The links of a rank: NVLink (or another carrier of collectives inside a node) and its share of the node's network,
// each in both directions.
enum class Link : std::uint8_t { nvlink_out, nvlink_in, nic_out, nic_in };
inline constexpr int link_count = 4;
using LinkSeconds = std::array<double, link_count>;

// A collective of an operation: the computation before it, its latency, and the `seconds` that it takes with all links
// to itself, in which it needs each for so many; of these `computed` are attention, which runs beside it.
struct Wire {
  double before = 0, latency = 0, seconds = 0;
  LinkSeconds links{};
  double computed = 0;
};
using Wires = std::vector<Wire>;

struct Instruction {
  enum class Kind : std::uint8_t {
    run,          // `seconds` on `lane`
    follow,       // `lane` waits for the work of `other` so far
    record,       // event `event` stands for the work of `lane` so far
    wait,         // `lane` waits for event `event`; none before its first record
    meet,         // `seconds` on `lane`, once all `members` ranks have come to the meeting `event`
    host_wait,    // the host waits for the work of `lane` so far
    begin_group,  // the next ones on `lane` run at the same time, up to
    end_group,    // here
  };
  Kind kind;
  Lane lane = Lane::compute, other = Lane::compute;
  double seconds = 0;      // on the stream, alone
  double host = 0;         // of the host before it goes on
  std::int64_t event = 0;  // of record and wait: the rank's own; of meet: all ranks'
  int members = 1;
  int task = -1;  // of the rank's list
  // Its collectives in their order, all of them within `seconds`; none: it only computes.
  std::shared_ptr<const Wires> wires = nullptr;
};

struct SimulatedMachine {
  double cores = 0;            // that all streams share, where processors compute; 0: each stream has its own
  double per_stream = 1;       // of them, taken by a running stream: as many as ranks that do the same at once
  bool host_computes = false;  // the compute stream is the host (CPU build)
  double overlap = 1;          // speed of the compute stream while another stream of the rank runs
  // Whether the operations of a rank share its links: none is used for more than a second a second, and all that need
  // the one that limits them are slowed alike.
  bool shares_links = true;
};

// A stream's span of work, and why the compute stream was idle before it.
struct Span {
  int task = -1;
  Lane lane = Lane::compute;
  double start = 0, end = 0;
  Lane waited_for = Lane::compute;  // whose end the start had to wait for: compute for its own or the host's
  double waited = 0;                // seconds that the compute stream was idle for it
  double slowed = 0;                // seconds that it took beyond those that it takes alone
};

struct Simulated {
  double seconds = 0;                    // until all ranks have ended
  std::vector<std::vector<Span>> ranks;  // by rank, in the order of their starts
  std::vector<double> busy;              // by rank, of the compute stream
};

// Throws Error where ranks wait for each other for ever.
Simulated simulate(const std::vector<std::vector<Instruction>>& programs, const SimulatedMachine& machine);

}  // namespace forge
