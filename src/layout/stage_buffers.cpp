#include "layout/stage_buffers.hpp"

#include <algorithm>

#include "core/bytes.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

std::vector<SlotPart> saved_parts(const BufferContext& c, const StageContent& stage,
                                  const std::vector<StageLayer>& layers, bool training) {
  Batch batch;
  BufferLister own(c), shifted(c);
  batch.list(own);
  batch.list_shifted(shifted);
  std::vector<SlotPart> parts{{layers.size(), Category::data, aligned_bytes(own.list)}};
  std::vector<int> states;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const StageLayer& layer = layers[l];
    if (!training && layer.trains_only()) continue;
    if (layer.state > 0 && std::find(states.begin(), states.end(), layer.state) == states.end()) {
      states.push_back(layer.state);
      parts.push_back({layers.size() + to_size(layer.state), Category::data, aligned_bytes(shifted.list)});
    }
    parts.push_back({l, Category::activations, bytes_in(LayerMemory::saved, c, stage, layer)});
  }
  return parts;
}

std::vector<SlotPart> left_parts(const BufferContext& c, const StageContent& stage,
                                 const std::vector<StageLayer>& layers) {
  std::vector<SlotPart> parts;
  for (std::size_t l = 0; l < layers.size(); ++l)
    if (const std::size_t bytes = bytes_in(LayerMemory::left, c, stage, layers[l]); bytes > 0)
      parts.push_back({l, Category::activations, bytes});
  return parts;
}

}  // namespace

std::string_view name_of(Region region) {
  constexpr std::string_view names[] = {"saved", "left", "input", "output", "d_output", "d_input"};
  return names[to_size(region)];
}

int states_on(Region edge, const StageContent& stage) {
  return edge == Region::input || edge == Region::input_gradient ? stage.states_in : stage.states_out();
}

std::vector<SlotPart> slot_parts(Region region, const BufferContext& c, const StageContent& stage,
                                 const std::vector<StageLayer>& layers, bool training) {
  const auto edge = [&](bool exists) -> std::vector<SlotPart> {
    const std::int64_t elements = (training ? states_on(region, stage) : 1) * c.stream_rows() * c.spec.C();
    if (!exists) return {};
    return {{0, Category::activations, align_up(to_size(elements) * size_of(c.precision.compute))}};
  };
  switch (region) {
    case Region::saved:
      return saved_parts(c, stage, layers, training);
    case Region::left:
      return left_parts(c, stage, layers);
    case Region::input:
      return edge(true);
    case Region::input_gradient:
      return edge(!stage.embedding);
    case Region::output:
    case Region::output_gradient:
      return edge(!stage.head);
  }
  return {};
}

}  // namespace forge
