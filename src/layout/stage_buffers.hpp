#pragma once

#include "core/category.hpp"
#include "layout/stage.hpp"
#include "model/buffers.hpp"

namespace forge {

// The buffers of a stage, from the lists of its layers: what the slots of its edges and layers hold, and what a task
// takes of the workspace. parallel/slots.hpp and parallel/executor.hpp allocate from these lists, plan/memory.hpp adds
// them up.

// What a microbatch keeps in a stage between tasks.
enum class Region : std::uint8_t {
  saved,   // its batch, and what layers keep for backward: from forward until W
  left,    // what B leaves for W where they are separate actions
  input,   // states that reach the stage
  output,  // states that it hands on
  output_gradient,
  input_gradient,
};
inline constexpr int region_count = 6;
std::string_view name_of(Region region);

// The buffers of a region, by part: of saved and left the layers of the list, and behind them the batches of the states
// that have layers or losses here (part = layers + state; 0 is the model's own batch); an edge is one part, its states
// stacked by rows. Evaluation has one state everywhere.
struct SlotPart {
  std::size_t part;
  Category category;
  BufferList buffers;
};
std::vector<SlotPart> slot_parts(Region region, const BufferContext& c, const StageContent& stage,
                                 const std::vector<StageLayer>& layers, bool training);

// What is recomputed of a layer, and what B leaves for W.
BufferList recomputed_of(const BufferContext& c, const StageLayer& layer);
BufferList gradients_of(const BufferContext& c, const StageLayer& layer);
// The most that a pass of a layer takes of the workspace beside these, at any time; `recompute`: to recompute what the
// policy dropped.
std::size_t scratch_bytes(const BufferContext& c, const StageLayer& layer, Pass pass, bool recompute = false);

}  // namespace forge
