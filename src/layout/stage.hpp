#pragma once

#include <vector>

#include "core/to_size.hpp"
#include "layout/local_units.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// A stage of the pipeline as a list of layers: their order, and the units of each. Forward walks the list from its
// begin, backward from its end. Between layers stand states (S, C): the residual stream, and normalised states: number
// 0 is the final norm's output, number d the output of multi-token prediction's norm at depth d.
enum class LayerKind : std::uint8_t {
  arrivals,    // normalised states from the stage before; backward hands their gradients back
  embedding,   // tokens → residual stream
  block,       // residual stream → residual stream
  norm,        // residual stream → normalised state
  head,        // normalised state → loss; its W runs in F, while a chunk of logits is at hand
  mtp_input,   // shifted tokens and the normalised state before → input of a depth's block
  departures,  // states → the stage behind; or, in a stage without layers, the arrivals
};
std::string_view name_of(LayerKind kind);

inline constexpr std::size_t no_unit = to_size(-1);

struct StageLayer {
  LayerKind kind;
  std::int64_t number = -1;  // of a block and of mtp_input: the model's layer
  int state = 0;             // of norm, head, mtp_input and a depth's block: the normalised state that it is about
  // Units, by index in the rank's: of the layer's parameters; experts of a block, positions of the embedding, token
  // table of mtp_input.
  std::size_t unit = no_unit, second = no_unit;
  std::size_t adapter = no_unit;               // of a block's adapters
  std::size_t expert_adapter = no_unit;        // of its experts' adapters
  bool frozen = false, second_frozen = false;  // they get no gradients
  bool idle = false;                           // nothing in or below it is trained: it has no backward
  bool recomputes_all = false;                 // a block under train.recompute = full, whatever the others are under

  // Whether its pass W has anything to do; W of experts and of their adapters runs with B.
  bool has_weights() const { return !frozen || adapter != no_unit; }
  // Evaluation has the model's own loss alone.
  bool trains_only() const { return state > 0; }
};

// `recomputed`: so many of the stage's first blocks recompute all.
std::vector<StageLayer> stage_layers(const StageContent& stage, const std::vector<LocalUnit>& units,
                                     bool tied_embeddings, std::int64_t recomputed = 0);

// Index of the unit of a kind and layer; no_unit where the rank has none.
std::size_t find_unit(const std::vector<LocalUnit>& units, UnitKind kind, std::int64_t layer = -1);

}  // namespace forge
