#pragma once

#include <cstdint>
#include <vector>

namespace forge {

// A discrete simulation of ranks that each have a host, which walks a list of instructions, and streams, which run what
// the host gives them in order. It knows nothing of models: predict/step_program.hpp writes the lists.

// The streams of a rank, as the executor has them.
enum class Lane : std::uint8_t { compute, parameters, gradients, transfers };
inline constexpr int lane_count = 4;

struct Instruction {
  enum class Kind : std::uint8_t {
    run,          // `seconds` on `lane`
    follow,       // `lane` waits for what `other` was given so far
    record,       // event `event` stands for what `lane` was given so far
    wait,         // `lane` waits for event `event`; none before its first record
    meet,         // `seconds` on `lane`, once all `members` ranks have come to the meeting `event`
    host_wait,    // the host waits for what `lane` was given so far
    begin_group,  // what follows on `lane` runs at the same time, up to
    end_group,    // here
  };
  Kind kind;
  Lane lane = Lane::compute, other = Lane::compute;
  double seconds = 0;      // on the stream
  double host = 0;         // of the host before it goes on
  std::int64_t event = 0;  // of record and wait: the rank's own; of meet: all ranks'
  int members = 1;
  int task = -1;  // of the rank's list
};

struct SimulatedMachine {
  double cores = 0;            // that all streams share, where processors compute; 0: each stream has its own
  double per_stream = 1;       // of them, what a stream that runs takes: the ranks that do the same at the same time
  bool host_computes = false;  // the compute stream is the host (CPU build)
  double overlap = 1;          // speed of the compute stream while another stream of the rank runs
};

// What a stream did, and why the compute stream was idle before it.
struct Span {
  int task = -1;
  Lane lane = Lane::compute;
  double start = 0, end = 0;
  Lane waited_for = Lane::compute;  // whose end the start had to wait for: compute for its own or the host's
  double waited = 0;                // seconds that the compute stream was idle for it
};

struct Simulated {
  double seconds = 0;                    // until all ranks have ended
  std::vector<std::vector<Span>> ranks;  // by rank, in the order of their starts
  std::vector<double> busy;              // by rank, of the compute stream
};

// Throws Error where ranks wait for each other for ever.
Simulated simulate(const std::vector<std::vector<Instruction>>& programs, const SimulatedMachine& machine);

}  // namespace forge
