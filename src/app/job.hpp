#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "app/command_line.hpp"
#include "comm/mesh.hpp"
#include "comm/world.hpp"
#include "config/node_ranks.hpp"
#include "config/read.hpp"
#include "parallel/whole_tensors.hpp"
#include "plan/rank_memory.hpp"
#include "train/session.hpp"

namespace forge {

// The deck of a command line: read, its model.hf resolved, and checked against the world; world_size 0: the ranks that
// its mesh asks for. Nodes are of so many consecutive ranks; 0: not known.
Deck load_deck(const CommandLine& line, Needs needs, int world_size, int node_ranks = asked_node_ranks());
// The deck of a job, on all of its ranks; where srun started too few, the message is the option that is missing. The
// watchdog has the deck's deadlines from here on.
Deck load_deck(const CommandLine& line, Needs needs, const World& world);
Deadlines deadlines_of(const MachineDeck& machine);
// The watchdog's deadlines for the ranks of the command line until load_deck() has set them; the defaults where the
// deck cannot be read, none for replay and a text of generate, which a single rank computes.
Deadlines deadlines_of(const CommandLine& line);

// OpenMP threads of a rank: machine.threads, else OMP_NUM_THREADS, else the --cpus-per-task of srun, else the node's
// cores over its ranks.
int threads_of(const Deck& deck, const World& world);
// Like threads_of(), started where ranks compute with them.
int start_threads_of(const Deck& deck, const World& world);

// Chooses this rank's device, before a Job. All ranks: throws BadInput on every one where two would share a GPU, or
// where the planned memory isn't free. Nothing has been allocated or written. The setup is then one on this device.
void prepare_device(RunSetup& setup, RunKind kind, const World& world);

// A mesh of all ranks and a session of the planned size, with its parameters; where it `restarts`, without: a
// checkpoint gives them (train/restart.hpp), and nothing is drawn or read before.
template <class T>
struct Job {
  RunSetup setup;
  int threads;
  Mesh mesh;
  MemoryPlan memory;
  std::unique_ptr<Session<T>> session;
  std::string parameters;          // where they come from: "model.hf DIR, 290 tensors", "initial values, seed 5"
  std::vector<std::string> notes;  // for the log: parts of files left out, or not usable
  std::int64_t updates = 0;        // behind which the optimizer's state stands

  Job(const RunSetup& run, RunKind kind, const World& world, bool restarts = false);
  // For files of whole tensors; all ranks.
  WholeTensors<T> whole_tensors();

 private:
  void load_parameters();
};

// Calls f(T{}) with the compute type of the deck.
template <class F>
void with_compute_type(const Deck& deck, F&& f) {
  with_compute_type(precision_of(deck), [&](auto type) { f(std::type_identity<decltype(type)>{}); });
}

}  // namespace forge
