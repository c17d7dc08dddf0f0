#include "layout/stage_buffers.hpp"

#include <algorithm>

#include "model/context_buffers.hpp"
#include "model/mtp_buffers.hpp"

namespace forge {

namespace {

void append(BufferList& list, const BufferList& more) {
  list.insert(list.end(), more.begin(), more.end());
}

// `list`, of one buffer, for so many states.
BufferList stacked(BufferList list, int states) {
  list.front().extents[0] *= states;
  return list;
}

BufferList saved_of(const BufferContext& c, const StageContent& stage, const StageLayer& layer) {
  BufferList list;
  switch (layer.kind) {
    case LayerKind::block:
      if (layer.state > 0 || layer.number > stage.layer(0)) append(list, block_input(c));
      append(list, saved_of_block(c, layer.number));
      break;
    case LayerKind::norm:
      if (layer.state > 0 || stage.layers > 0) append(list, head_input(c));
      append(list, layer.state > 0 ? saved_of_depth_norm(c) : saved_of_head(c));
      // Where another layer or stage reads it than the head right behind.
      if (layer.state + 1 < stage.states_out() || !stage.head) append(list, head_output(c));
      break;
    case LayerKind::head:
      if (layer.state < stage.states_in && !stage.final_norm()) append(list, saved_of_state(c));
      break;
    case LayerKind::mtp_input:
      append(list, saved_of_mtp(c));
      break;
    default:
      break;
  }
  return list;
}

std::vector<SlotPart> saved_parts(const BufferContext& c, const StageContent& stage,
                                  const std::vector<StageLayer>& layers, bool training) {
  std::vector<SlotPart> parts;
  parts.push_back({layers.size(), Category::data, batch_buffers(c)});
  std::vector<int> states;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const StageLayer& layer = layers[l];
    if (!training && layer.trains_only()) continue;
    if (layer.state > 0 && std::find(states.begin(), states.end(), layer.state) == states.end()) {
      states.push_back(layer.state);
      parts.push_back({layers.size() + static_cast<std::size_t>(layer.state), Category::data, batch_of_mtp(c)});
    }
    parts.push_back({l, Category::activations, saved_of(c, stage, layer)});
  }
  return parts;
}

std::vector<SlotPart> left_parts(const BufferContext& c, const StageContent& stage,
                                 const std::vector<StageLayer>& layers) {
  std::vector<SlotPart> parts;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const StageLayer& layer = layers[l];
    BufferList list = recomputed_of(c, layer);
    append(list, gradients_of(c, layer));
    if (layer.kind == LayerKind::mtp_input) append(list, gradients_of_mtp(c));
    // Gradients of the residual stream that stand on no edge.
    const bool ends = layer.kind == LayerKind::block && layer.state == 0 &&
                      layer.number + 1 == stage.layer(stage.layers) && !stage.final_norm();
    const bool below = layer.kind == LayerKind::embedding && (stage.layers > 0 || stage.ends_model());
    if ((layer.kind == LayerKind::block && !ends) || below) append(list, output_gradient(c));
    if (!list.empty()) parts.push_back({l, Category::activations, list});
  }
  return parts;
}

}  // namespace

std::string_view name_of(Region region) {
  constexpr std::string_view names[] = {"saved", "left", "input", "output", "d_output", "d_input"};
  return names[static_cast<std::size_t>(region)];
}

std::vector<SlotPart> slot_parts(Region region, const BufferContext& c, const StageContent& stage,
                                 const std::vector<StageLayer>& layers, bool training) {
  const auto edge = [&](bool exists, int states) -> std::vector<SlotPart> {
    if (!exists) return {};
    return {{0, Category::activations, stacked(block_input(c), training ? states : 1)}};
  };
  switch (region) {
    case Region::saved:
      return saved_parts(c, stage, layers, training);
    case Region::left:
      return left_parts(c, stage, layers);
    case Region::input:
      return edge(true, stage.states_in);
    case Region::input_gradient:
      return edge(!stage.embedding, stage.states_in);
    case Region::output:
    case Region::output_gradient:
      return edge(!stage.head, stage.states_out());
  }
  return {};
}

BufferList recomputed_of(const BufferContext& c, const StageLayer& layer) {
  if (layer.kind == LayerKind::mtp_input) return recomputed_of_mtp(c);
  return layer.kind == LayerKind::block ? recomputed_of_block(c, layer.number) : BufferList{};
}

BufferList gradients_of(const BufferContext& c, const StageLayer& layer) {
  return layer.kind == LayerKind::block ? gradients_of_block(c, layer.number) : BufferList{};
}

namespace {

std::size_t scratch_of_block(const BufferContext& c, std::int64_t layer, Pass pass, bool recompute) {
  const auto forward = [&] {
    return aligned_bytes(scratch_forward_block(c, layer)) +
           std::max(aligned_bytes(scratch_forward_latents(c)), aligned_bytes(scratch_context_forward(c)));
  };
  if (recompute) return c.recompute == Recompute::full ? forward() : 0;
  if (pass == Pass::forward) return aligned_bytes(recomputed_of_block(c, layer)) + forward();
  if (pass == Pass::backward_weight) return aligned_bytes(scratch_backward_weight(c, layer));
  return std::max(aligned_bytes(scratch_backward_mlp(c, layer)),
                  aligned_bytes(scratch_backward_attention(c)) + aligned_bytes(scratch_context_backward(c)));
}

std::size_t scratch_of_mtp_input(const BufferContext& c, Pass pass) {
  const std::size_t rows = aligned_bytes(scratch_embedding(c));
  if (pass == Pass::forward) return std::max(rows, aligned_bytes(recomputed_of_mtp(c)));
  return pass == Pass::backward_input ? rows + aligned_bytes(scratch_backward_mtp(c)) : 0;
}

}  // namespace

std::size_t scratch_bytes(const BufferContext& c, const StageLayer& layer, Pass pass, bool recompute) {
  switch (layer.kind) {
    case LayerKind::block:
      return scratch_of_block(c, layer.number, pass, recompute);
    case LayerKind::mtp_input:
      return recompute ? 0 : scratch_of_mtp_input(c, pass);
    case LayerKind::embedding:
      return aligned_bytes(scratch_embedding(c));
    case LayerKind::norm:
      return pass == Pass::backward_input ? aligned_bytes(scratch_head_backward(c)) : 0;
    case LayerKind::head:
      return aligned_bytes(scratch_head_forward(c));
    default:
      return 0;
  }
}

}  // namespace forge
