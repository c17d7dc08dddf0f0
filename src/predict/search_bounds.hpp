#pragma once

#include <array>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "config/recompute.hpp"
#include "predict/machine.hpp"
#include "predict/search_space.hpp"
#include "predict/step_cost.hpp"

namespace forge {

// A layout of the search's space with its bounds.
struct Candidate {
  std::size_t mesh;
  Choice choice;
  double seconds;  // the bound of its step
  double likely;   // with bubble: the order of simulation
  double bytes;    // the bound of its memory
  double again;    // seconds that recomputing all blocks whole adds to the bound; 0: the policy drops too little for it
  bool partly;     // fits with some blocks recomputed whole, if at all
};

// Whether a choice that needs so many bytes may still fit with a few blocks recomputed whole: its policy drops most of
// all below full, and a stage has several layers.
inline bool nearly_fits(const Choice& choice, const Deck& deck, const MeshDeck& mesh, double bytes, double usable) {
  constexpr double nearly = 1.3;
  return choice.recompute == most_below_full(deck.model) && deck.model.layers > mesh.pp * choice.chunks &&
         bytes <= nearly * usable;
}

// Time that something takes, and time of it on each link.
struct Taken {
  double seconds = 0;
  double exchanged = 0;  // of them, in collectives that pairs of passes run beside computation
  LinkSeconds links{};

  void add(double more, const LinkSeconds& on_links, double times = 1) {
    seconds += times * more;
    for (std::size_t l = 0; l < links.size(); ++l) links[l] += times * on_links[l];
  }
  void add(const TaskCost& cost) {
    add(cost.total(), {});
    if (cost.wires)
      for (const Wire& wire : *cost.wires) {
        add(0, wire.links);
        if (wire.computed == 0) exchanged += wire.latency + wire.seconds;
      }
  }
  void add(const WireTime& time, double times) {
    add(time.total(), {time.nvlink, time.nvlink, time.nic, time.nic}, times);
  }
};

// Bounds of memory and time of a deck's layouts on so many ranks; several threads may ask.
class Bounds {
 public:
  using Places = std::array<Placement, group_count>;

  Bounds(const Machine& machine, const Deck& resolved, int ranks);

  // The choices of a mesh that may fit; `index`: its number in them.
  std::vector<Candidate> on_mesh(std::size_t index, const MeshDeck& mesh);

 private:
  // The costs of a microbatch in the layers of the whole model, on one rank of a mesh.
  struct LayersCost {
    Taken taken;       // by all passes of all layers and of the head
    double saved = 0;  // bytes that all layers keep
  };
  // Elements of the model's parameters.
  struct ModelSize {
    double dense = 0, experts = 0;  // tables, which only some stages have, are left out
    double block = 0;               // the largest unit of the dense ones
    double layer_experts = 0;       // the largest one of experts
  };

  const LayersCost& layers_of(const Deck& deck, const MeshShape& mesh, const Places& places);
  LayersCost compute(const Deck& deck, const MeshShape& mesh, const Places& places) const;
  double least_seconds(const Deck& deck, const LayersCost& cost, const Places& places, double microbatches) const;
  void add_shard_sums(Taken& taken, const Places& places, bool experts, double elements, const Precision& p,
                      double times) const;
  double expert_traffic_seconds(const Deck& deck, const Places& places, double microbatches) const;
  double least_bytes(const Deck& deck, const LayersCost& cost, double in_flight) const;

  const Machine& machine_;
  const Deck& deck_;
  ModelSpec spec_;
  int ranks_;
  ModelSize size_;
  std::size_t state_bytes_ = 0;  // that the optimizer keeps of an element, with the weights in storage
  std::mutex mutex_;
  // The key of known costs: microbatch, recomputation, dispatch, codes that are gathered, codes that are rounded once,
  // and the mesh as far as layers know it: tp, cp, ep, etp and how their groups lie. Many meshes are alike there.
  using Key = std::tuple<std::array<std::int64_t, 7>, unsigned, DispatchMethod, std::array<bool, 2>,
                         std::array<std::array<int, 4>, 6>>;
  std::map<Key, LayersCost> known_;
};

}  // namespace forge
