#pragma once

#include <bit>

#include "core/category.hpp"
#include "layout/layer_kinds.hpp"
#include "nn/batch.plan.hpp"

namespace forge {

// The buffers of a stage, from the lists of its layers: the slots of its edges and layers, and a task's
// workspace. parallel/ allocates as many bytes and places each layer's struct there; plan/memory.hpp adds them
// up.

// A microbatch's memory in a stage between tasks.
enum class Region : std::uint8_t {
  saved,   // its batch, and layers' buffers for backward: from forward until W
  left,    // buffers from B for W where they are separate actions
  input,   // states that reach the stage
  output,  // states that it hands on
  output_gradient,
  input_gradient,
};
inline constexpr int region_count = 6;
using Regions = unsigned;  // a set of them
constexpr Regions set_of(Region region) {
  return 1u << static_cast<unsigned>(region);
}
// The region of a set with one.
constexpr Region only_of(Regions one) {
  return static_cast<Region>(std::countr_zero(one));
}
std::string_view name_of(Region region);

// States on an edge of a stage; evaluation has one everywhere.
int states_on(Region edge, const StageContent& stage);

// The memory of a region, by part: of saved and left the layers of the list, and behind them the batches of the states
// that have layers or losses here (part = layers + state; 0 is the model's own batch); an edge is one part, its states
// stacked by rows. Evaluation has one state everywhere.
struct SlotPart {
  std::size_t part;
  Category category;
  std::size_t bytes;
};
std::vector<SlotPart> slot_parts(Region region, const BufferContext& c, const StageContent& stage,
                                 const std::vector<StageLayer>& layers, bool training);

}  // namespace forge
