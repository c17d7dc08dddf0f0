#pragma once

#include <string>

#include "comm/world.hpp"
#include "plan/rank_memory.hpp"

namespace forge {

// A GPU for `forge show --gpu`, its memory as the driver reports it, and its compute capability; 0: not known.
struct AskedGpu {
  std::string name;  // as it was asked for
  std::size_t mib;
  int capability = 0;
  int node_ranks = 0;  // of a machine; 0: not known
};
// The GPU of a name ("h100-80"), of a machine of inputs/machines ("h100_8") or its file, or of a size ("40GiB", "40GB"
// as GPUs are sold). Throws BadInput naming the legal ones.
AskedGpu gpu_of(const std::string& name);

// "GPUs of 80 GB or more, one a rank: …": the smallest of those on sale that have so much.
std::string fitting_gpus(const RankMemory& memory);
// "nearest change that fits: train.recompute=full (1.2 GiB)", found by planning each, for ranks that may have `limit`
// bytes, of a GPU or of a node's memory.
enum class FitOn { gpu, node };
std::string nearest_change(const RunSetup& setup, RunKind kind, std::size_t limit, FitOn on);
// The smallest number of GPUs of `usable` bytes on which some layout of a resolved deck's model and batch fits, up to
// eight, then of whole nodes of eight, of more than 64 to an eighth, and the deck's own; ranks 0: not found in 10 s.
// The layout's keys, as --set takes them, and the bytes of its largest rank.
struct FewestGpus {
  int ranks = 0;
  std::string keys;
  std::size_t bytes = 0;
  int tried = 0;   // the largest number that is known to be too small
  int enough = 0;  // the deck's own number, where a change of the deck fits on it and nothing smaller was found
  std::string text() const;  // a line without its end
};
FewestGpus fewest_gpus(const Deck& deck, std::size_t usable, int capability);
// Whether the deck fits on such GPUs, and if not the nearest change and the fewest GPUs: lines for `forge show`.
std::string fit_text(const RunSetup& setup, const AskedGpu& gpu);
// Throws BadInput where the deck asks for kernels that the device of this build hasn't.
void refuse_what_the_device_lacks(const RunSetup& setup);
// Throws BadInput where products of codes have scales that the library of this build doesn't know.
void refuse_scales(const RunSetup& setup);
// All ranks: throws BadInput on every one where some rank's GPU hasn't the free memory, with the nearest change that
// fits. Nothing has been allocated yet.
void refuse_what_does_not_fit(const RunSetup& setup, RunKind kind, const World& world);

// All ranks, where they compute on the CPU: throws BadInput on every one where the ranks of some node have planned more
// memory than the node, a cgroup or `ulimit -v` leaves them, with the nearest change that fits.
void refuse_what_nodes_lack(const RunSetup& setup, RunKind kind, const World& world);

// Throws Shortage where this process can't have so many bytes. `what`: "the model's weights".
void refuse_more_than_is_left(std::size_t bytes, const std::string& what);

// Chooses this rank's device by its number on the node. All ranks: throws BadInput on every one where two ranks of a
// node would have the same GPU, which NCCL refuses, unless FORGE_SHARE_GPU=1.
void choose_device(const World& world);

}  // namespace forge
