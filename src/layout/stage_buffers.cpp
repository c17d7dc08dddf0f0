#include "layout/stage_buffers.hpp"

#include <algorithm>

#include "core/bytes.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// A block and a depth's input have what recompute makes anew.
template <class T>
void list_made(BufferLister& l, const StageLayer& layer, LayerBuffers<T>& to) {
  if (layer.kind == LayerKind::block) to.block.list(l, layer.number);
  if (layer.kind == LayerKind::mtp_input) to.mtp.list(l);
}

void add_stream(BufferLister& l, auto& member, std::string_view name, Reader last) {
  l.add(member, name, l.S, l.spec.C(), last);
}

}  // namespace

template <class T>
void GradientStream<T>::list(BufferLister& l) {
  add_stream(l, a, "gradient of the residual, a", Reader::backward_weight);
  add_stream(l, b, "gradient of the residual, b", Reader::backward_weight);
}

template <class T>
BufferList saved_of(const BufferContext& c, const StageContent& stage, const StageLayer& layer, LayerBuffers<T>& to) {
  BufferLister l(c, BufferLister::Part::saved);
  if (layer.kind == LayerKind::block && (layer.state > 0 || layer.number > stage.layer(0)))
    add_stream(l, to.x, "block input", Reader::backward_input);
  list_made(l, layer, to);
  if (layer.kind == LayerKind::norm) {
    if (layer.state > 0 || stage.layers > 0) to.state.list_input(l);
    to.state.list_of_norm(l, layer.state > 0);
    // Where another layer or stage reads it than the head right behind.
    if (layer.state + 1 < stage.states_out() || !stage.head) to.state.list_state(l);
  }
  if (layer.kind == LayerKind::head && layer.state < stage.states_in && !stage.final_norm()) to.state.list_of_head(l);
  return l.list;
}

template <class T>
BufferList recomputed_of(const BufferContext& c, const StageLayer& layer, LayerBuffers<T>& to) {
  BufferLister l(c, BufferLister::Part::recomputed);
  list_made(l, layer, to);
  return l.list;
}

template <class T>
BufferList gradients_of(const BufferContext& c, const StageLayer& layer, LayerBuffers<T>& to) {
  BufferLister l(c);
  if (layer.kind == LayerKind::block) to.block.list_gradients(l, layer.number);
  return l.list;
}

template <class T>
BufferList left_of(const BufferContext& c, const StageContent& stage, const StageLayer& layer, LayerBuffers<T>& to) {
  BufferLister l(c, BufferLister::Part::recomputed);
  list_made(l, layer, to);
  if (layer.kind == LayerKind::block) to.block.list_gradients(l, layer.number);
  if (layer.kind == LayerKind::mtp_input) to.mtp.list_gradients(l);
  // Gradients of the residual stream that stand on no edge.
  const bool ends = layer.kind == LayerKind::block && layer.state == 0 &&
                    layer.number + 1 == stage.layer(stage.layers) && !stage.final_norm();
  const bool below = layer.kind == LayerKind::embedding && (stage.layers > 0 || stage.ends_model());
  if ((layer.kind == LayerKind::block && !ends) || below)
    add_stream(l, to.d_out, "gradient of the output", Reader::backward_weight);
  return l.list;
}

#define FORGE_INSTANTIATE(T)                                                                                    \
  template struct GradientStream<T>;                                                                            \
  template BufferList saved_of(const BufferContext&, const StageContent&, const StageLayer&, LayerBuffers<T>&); \
  template BufferList recomputed_of(const BufferContext&, const StageLayer&, LayerBuffers<T>&);                 \
  template BufferList gradients_of(const BufferContext&, const StageLayer&, LayerBuffers<T>&);                  \
  template BufferList left_of(const BufferContext&, const StageContent&, const StageLayer&, LayerBuffers<T>&);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

namespace {

// Bytes of list_of(LayerBuffers<T>&) in the context's type.
template <class F>
std::size_t bytes_of(const BufferContext& c, F list_of) {
  return with_compute_type(c.precision, [&](auto type) {
    LayerBuffers<decltype(type)> members;
    return aligned_bytes(list_of(members));
  });
}

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
    parts.push_back({l, Category::activations, bytes_of(c, [&](auto& to) { return saved_of(c, stage, layer, to); })});
  }
  return parts;
}

std::vector<SlotPart> left_parts(const BufferContext& c, const StageContent& stage,
                                 const std::vector<StageLayer>& layers) {
  std::vector<SlotPart> parts;
  for (std::size_t l = 0; l < layers.size(); ++l)
    if (const std::size_t bytes = bytes_of(c, [&](auto& to) { return left_of(c, stage, layers[l], to); }); bytes > 0)
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

std::size_t state_bytes(const BufferContext& c) {
  return bytes_of(c, [&](auto& to) {
    BufferLister l(c);
    to.state.list_state(l);
    return l.list;
  });
}

std::size_t stream_bytes(const BufferContext& c) {
  return with_compute_type(c.precision, [&](auto type) { return counted_bytes<GradientStream<decltype(type)>>(c); });
}

std::size_t recomputed_bytes(const BufferContext& c, const StageLayer& layer) {
  return bytes_of(c, [&](auto& to) { return recomputed_of(c, layer, to); });
}

std::size_t gradient_bytes(const BufferContext& c, const StageLayer& layer) {
  return bytes_of(c, [&](auto& to) { return gradients_of(c, layer, to); });
}

namespace {

template <class T>
std::size_t scratch_of_mtp_input(const BufferContext& c, Pass pass) {
  const std::size_t rows = counted_bytes<EmbeddingScratch<T>>(c);
  if (pass == Pass::backward_weight) return 0;
  if (pass == Pass::backward_input) return rows + counted_bytes<MtpScratch<T>>(c);
  return std::max(rows, recomputed_bytes(c, {LayerKind::mtp_input}));
}

}  // namespace

std::size_t scratch_bytes(const BufferContext& c, const StageLayer& layer, Pass pass, bool recompute) {
  return with_compute_type(c.precision, [&](auto type) -> std::size_t {
    using T = decltype(type);
    switch (layer.kind) {
      case LayerKind::block:
        return block_scratch(c, layer.number, pass, recompute);
      case LayerKind::mtp_input:
        return recompute ? 0 : scratch_of_mtp_input<T>(c, pass);
      case LayerKind::embedding:
        return counted_bytes<EmbeddingScratch<T>>(c);
      case LayerKind::norm:
        return pass == Pass::backward_input ? counted_bytes<NormScratch<T>>(c) : 0;
      case LayerKind::head:
        return counted_bytes<HeadScratch<T>>(c);
      default:
        return 0;
    }
  });
}

}  // namespace forge
