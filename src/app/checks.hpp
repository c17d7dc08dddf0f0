#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.hpp"
#include "config/deck.hpp"
#include "core/heartbeat.hpp"
#include "core/left_over.hpp"
#include "device/device_memory.hpp"
#include "predict/machine.hpp"

namespace forge {

// Parts of `forge check`, which compares the ranks of a job with each other.

enum class Verdict {
  ok,
  low,     // a limit or a difference that a job can live with
  slow,    // ranks take longer than the median of all
  wrong,   // results that can't be
  untried  // the reason stands in the text
};

// The table. Its rows come from all ranks; the first one prints them.
class Checks {
 public:
  // `slow`: how many times the median a rank may take.
  Checks(const World& world, double slow);

  // Each collective. `seconds` of this rank; 0: it takes no part. `text`: for the median; `blames`: the nodes of slow
  // ranks are to be left out of jobs.
  void compare(const std::string& name, double seconds, const std::function<std::string(double median)>& text,
               bool blames);
  // A finding of this rank, "": none. `otherwise`: the text where no rank has one.
  void find(const std::string& name, Verdict verdict, const std::string& finding, const std::string& otherwise,
            bool blames);
  // A value that all ranks of a `kind` have alike.
  void agree(const std::string& name, Verdict verdict, const std::string& kind, const std::string& value,
             const std::string& text, bool blames);
  // A row that all ranks know already.
  void add(const std::string& name, Verdict verdict, const std::string& text);

  Communicator& ranks() { return *ranks_; }
  const World& world() const { return world_; }
  Heartbeat& heartbeat() const { return world_.watchdog().heartbeat(); }

  // Collective, behind all rows: names of the nodes to leave out, each once, in the order of ranks; on every rank.
  std::vector<std::string> nodes_to_leave_out();
  // Collective: rows that are slow or wrong, and all but the untried ones; on every rank.
  std::pair<std::int64_t, std::int64_t> failed_and_made();

 private:
  void print(const std::string& name, Verdict verdict, const std::string& text);
  void blame(const std::vector<int>& ranks, bool blames);

  const World& world_;
  std::unique_ptr<Communicator> ranks_;
  double slow_;
  std::int64_t failed_ = 0, made_ = 0;  // of rank 0
  std::vector<int> odd_;                // of rank 0: ranks whose nodes are to be left out
};

// A size: for a GPU, or for a processor or the emulated GPU.
inline std::int64_t sized(std::int64_t gpu, std::int64_t other) {
  return std::string(device_info().kind) == "cuda" ? gpu : other;
}

// Products and copies of a rank's device in the deck's compute type: their time, and whether they give the same bits
// again and on all devices of one name.
void check_device(Checks& checks, const Deck& deck);
// Sums in each group of the deck's mesh, and messages between neighbours in the node and in the next node: contents and
// time, which `machine`, where there is one, says too.
void check_links(Checks& checks, const Deck& deck, const Machine* machine);
// Limits of the processes, clocks of the nodes.
void check_limits(Checks& checks, const Deck& deck);
// A directory of the check's own in `directory`, seen by all nodes; removed at its end.
class CheckedDirectory {
 public:
  // Collective. Makes it; path(): "" on ranks that don't see it.
  CheckedDirectory(Checks& checks, const std::string& directory);
  ~CheckedDirectory();
  CheckedDirectory(const CheckedDirectory&) = delete;
  CheckedDirectory& operator=(const CheckedDirectory&) = delete;

  // Checkpoints and locks rely on this: a file written and forced to the disk on each node is read on the next one, a
  // name is made once, a renamed file is seen by all.
  void check();
  // On every rank: all ranks see it.
  bool shared() const { return shared_; }
  const std::string& path() const { return path_; }

 private:
  Checks& checks_;
  std::string path_;
  std::optional<LeftOver> left_over_;  // of path_
  bool shared_ = false;
};
// A step in fp64 of a model of a few thousand parameters on the deck's mesh, beside the same step on one rank alone.
void check_step(Checks& checks, const Deck& deck, const CheckedDirectory& directory);
// The deck of check_step(), with the mesh, schedule and sharding of `deck`; `alone`: on one rank.
Deck tiny_deck(const Deck& deck, const std::string& tokens, bool alone);

}  // namespace forge
