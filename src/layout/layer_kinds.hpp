#pragma once

#include <array>

#include "core/collectives.hpp"
#include "layout/stage.hpp"
#include "nn/block.plan.hpp"
#include "nn/head.plan.hpp"
#include "nn/mtp.plan.hpp"

namespace forge {

// The properties of any layer of a stage, without running it: layer_kinds.cpp has a struct for each LayerKind. Layers
// run in parallel/executor_layers.cpp.

bool does(const StageLayer& layer, Pass pass);
// Whether backward recomputes something that a recompute policy other than none dropped.
bool recomputes(const StageLayer& layer);
// The recompute policy of a layer, by which the functions below go: full, or the run's.
Recompute policy_of(const StageLayer& layer, const BufferContext& run);
// Units whose weights the pass reads, in the order of use; backward_weight reads none.
std::vector<std::size_t> units_read(const StageLayer& layer, Pass pass);
// Units to whose gradients the pass adds the last terms. A norm's weight is a vector: where its unit has matrices too,
// the pass that adds those completes the unit.
std::vector<std::size_t> units_completed(const StageLayer& layer, Pass pass);

// The buffers of a layer between its passes.
template <class T>
struct LayerBuffers {
  View<T, 2> x;      // (S, C) a block's input, where no edge of the stage is it
  View<T, 2> d_out;  // (S, C) gradient of the layer's term of the residual stream, likewise, for W
  BlockBuffers<T> block;
  StateBuffers<T> state;
  MtpBuffers<T> mtp;
  std::array<View<T, 2>, 2> stream;  // (S, C) gradients of the residual stream, above and below a layer, in turn
};
// Where buffers of a layer stand between its passes.
enum class LayerMemory {
  saved,  // in a slot, from forward on
  left,   // in a slot, from B to W, where these are separate actions: recomputed buffers, and B's for W
  // In a frame.
  recomputed,  // with the gathered rows of keeps_gathered(), which `left` lacks
  gradients,   // buffers from B for W
  state,       // a normalised state that the head alone reads
  stream,      // where W follows B directly; of all layers of a pass
};
inline constexpr int layer_memory_count = 6;
std::string_view name_of(LayerMemory memory);
// Whether a norm's output stands in a frame, since only the head right behind reads it.
bool is_private_state(const StageContent& stage, const StageLayer& layer);
// The members that stand there.
template <class T>
BufferList buffers_in(LayerMemory memory, const BufferContext& c, const StageContent& stage, const StageLayer& layer,
                      LayerBuffers<T>& to);
std::size_t bytes_in(LayerMemory memory, const BufferContext& c, const StageContent& stage, const StageLayer& layer);
// The most workspace that a pass of a layer takes beside these, at any time; `recompute`: to recompute buffers that the
// policy dropped.
std::size_t scratch_bytes(const BufferContext& c, const StageLayer& layer, Pass pass, bool recompute = false);

// The work and collectives of a layer's pass on this rank in a training step, in order. Of dropless dispatch one round,
// as where the router loads all experts alike, with the same rows for each.
Segments segments_of(const BufferContext& c, int cp_rank, const StageLayer& layer, Pass pass, bool recompute = false);

}  // namespace forge
