#include "model/mtp_buffers.hpp"
#include "nn/mtp.hpp"
#include "parallel/executor.hpp"

// Passes of a stage's layers, and where each of them reads and writes.

namespace forge {

// ---- states and their gradients

template <class T>
std::size_t Executor<T>::layer_of(const Task& task, LayerKind kind, int state) const {
  const auto& list = layers(task);
  for (std::size_t l = 0; l < list.size(); ++l)
    if (list[l].kind == kind && list[l].state == state) return l;
  throw Error("a stage has no layer of a kind and state that a task asks for");
}

template <class T>
View<T, 2> Executor<T>::residual(const Task& task, int position) const {
  const StageContent& c = content(task);
  const bool ends = position == c.layers;
  if (position == 0 && !(ends && c.embedding && !c.ends_model())) return edge(task, Region::input);
  if (!ends) return saved(task, block_at(task, position)).template matrix<T>(Buf::x);
  if (!c.final_norm()) return edge(task, Region::output);
  return saved(task, layer_of(task, LayerKind::norm, 0)).template matrix<T>(Buf::x_final);
}

template <class T>
View<T, 2> Executor<T>::residual_gradient(const Task& task, int position) const {
  const StageContent& c = content(task);
  if (position == 0 && !c.embedding) return edge(task, Region::input_gradient);
  if (position == c.layers && !c.final_norm()) return edge(task, Region::output_gradient);
  if (task.fused())  // the two take turns
    return frames_[0].buffers.template matrix<T>(position % 2 ? Buf::d_stream_a : Buf::d_stream_b);
  const std::size_t owner = position > 0 ? block_at(task, position - 1) : layer_of(task, LayerKind::embedding, 0);
  return left(task, owner).template matrix<T>(Buf::d_stream_a);
}

template <class T>
View<T, 2> Executor<T>::state(const Task& task, int number) const {
  if (!is_own(task, number)) return edge(task, Region::input, number);
  const BufferSet& set = saved(task, layer_of(task, LayerKind::norm, number));
  return (set.has(Buf::n_final) ? set : frames_[open_ - 1].buffers).template matrix<T>(Buf::n_final);
}

// That of a state from another stage gathers where the head keeps it or, without a head, where it arrives.
template <class T>
View<T, 2> Executor<T>::state_gradient(const Task& task, int number) const {
  if (!is_own(task, number) && !content(task).head) return edge(task, Region::output_gradient, number);
  const LayerKind keeper = is_own(task, number) ? LayerKind::norm : LayerKind::head;
  return saved(task, layer_of(task, keeper, number)).template matrix<T>(Buf::d_n_final);
}

template <class T>
View<T, 2> Executor<T>::output_of(const Task& task, const StageLayer& block) const {
  if (block.state == 0) return residual(task, position_of(task, block) + 1);
  return saved(task, layer_of(task, LayerKind::norm, block.state)).template matrix<T>(Buf::x_final);
}

template <class T>
View<T, 2> Executor<T>::output_gradient_of(const Task& task, const StageLayer& block) const {
  if (block.state == 0) return residual_gradient(task, position_of(task, block) + 1);
  const BufferSet& set = task.fused() ? frames_[0].buffers : left(task, layer_of(task, LayerKind::block, block.state));
  return set.matrix<T>(Buf::d_stream_a);
}

template <class T>
View<T, 2> Executor<T>::input_gradient_of(const Task& task, const StageLayer& block) const {
  if (block.state == 0) return residual_gradient(task, position_of(task, block));
  if (task.fused()) return frames_[0].buffers.template matrix<T>(Buf::d_stream_b);
  return left(task, layer_of(task, LayerKind::mtp_input, block.state)).template matrix<T>(Buf::d_mtp_block);
}

// ---- buffers, weights and gradients of a layer

template <class T>
BufferSet Executor<T>::buffers_of(const Task& task, const StageLayer& layer) const {
  const auto l = static_cast<std::size_t>(task.layer);
  BufferSet s = slots_.batch(task.action.chunk, task.action.microbatch, layer.state);
  s.merge(saved(task, l));
  if (task.op != TaskOp::forward && !task.fused()) s.merge(left(task, l));
  add_frames(s);
  if (layer.kind == LayerKind::block && layer.state == 0) s.name(Buf::x, residual(task, position_of(task, layer)));
  if (layer.kind == LayerKind::mtp_input) s.name(Buf::x, saved(task, l + 1).template matrix<T>(Buf::x));
  return s;
}

template <class T>
BufferSet Executor<T>::norm_buffers(const Task& task, const StageLayer& layer) const {
  BufferSet s = saved(task, static_cast<std::size_t>(task.layer));
  add_frames(s);
  if (layer.state == 0) s.name(Buf::x_final, residual(task, content(task).layers));
  return s;
}

template <class T>
BlockTensors<const T> Executor<T>::block_weights(const StageLayer& layer) const {
  auto w = block_tensors(context_.spec(), local(layer.unit), weights(layer.unit));
  if (layer.second != no_unit)
    set_expert_tensors(w, context_.spec(), context_.experts_here(), local(layer.second), weights(layer.second));
  return w;
}

// W of experts runs with B: the rows of later rounds exist only there.
template <class T>
BlockTensors<acc_t<T>> Executor<T>::block_gradients(const StageLayer& layer, bool with_matrices) const {
  UnitPart<acc_t<T>> product_sums;
  if (with_matrices) product_sums.data = matrices(layer.unit);
  auto g = block_tensors(context_.spec(), local(layer.unit), product_sums, vectors(layer.unit));
  if (layer.second != no_unit && !with_matrices)
    set_expert_tensors(g, context_.spec(), context_.experts_here(), local(layer.second), matrices(layer.second));
  return g;
}

template <class T>
HeadTensors<const T> Executor<T>::norm_weights(const StageLayer& layer) const {
  const T* base = weights(layer.unit);
  if (layer.state == 0) return head_tensors(context_.spec(), View<const T, 2>(), local(layer.unit), base);
  return head_tensors(View<const T, 2>(), mtp_tensors(context_.spec(), local(layer.unit), base));
}

template <class T>
HeadTensors<acc_t<T>> Executor<T>::norm_gradients(const StageLayer& layer) const {
  const UnitPart<acc_t<T>> sums = vectors(layer.unit);
  if (layer.state == 0) return head_tensors(context_.spec(), View<acc_t<T>, 2>(), local(layer.unit), sums);
  return head_tensors(View<acc_t<T>, 2>(), mtp_tensors(context_.spec(), local(layer.unit), {}, sums));
}

template <class T>
View<acc_t<T>, 2> Executor<T>::table_gradient(std::size_t unit) const {
  return table_tensor(context_.spec(), local(unit), matrices(unit));
}

// ---- passes

template <class T>
void Executor<T>::forward(const Task& task, const StageLayer& layer) {
  const ModelSpec& spec = context_.spec();
  const auto table = [&](std::size_t unit) { return table_tensor(spec, local(unit), weights(unit)); };
  const int chunk = task.action.chunk, m = task.action.microbatch;
  switch (layer.kind) {
    case LayerKind::embedding: {
      EmbeddingTensors<const T> w{table(layer.unit), {}};
      if (layer.second != no_unit) w.positions = table(layer.second);
      return embed_forward<T>(context_, w, slots_.batch(chunk, m, 0), residual(task, 0));
    }
    case LayerKind::block:
      return block_forward<T>(context_, layer.number, block_weights(layer), buffers_of(task, layer),
                              output_of(task, layer));
    case LayerKind::norm:
      return final_norm_forward<T>(context_, norm_weights(layer), norm_buffers(task, layer));
    case LayerKind::head: {
      const HeadTensors<const T> w{table(layer.unit), {}, {}};
      HeadTensors<acc_t<T>> g;
      if (context_.training) g.output = table_gradient(layer.unit);
      BufferSet s = slots_.batch(chunk, m, layer.state);
      s.name(Buf::n_final, state(task, layer.state));
      s.name(Buf::d_n_final, state_gradient(task, layer.state));
      const auto sum = [&](int which) { return View<double, 1>(step_.mtp.sums.row(layer.state - 1) + which, {{1}}); };
      const bool own = layer.state == 0;
      return head_forward<T>(
          context_, w, context_.training ? &g : nullptr, s, vocabulary_,
          own ? step_.scale : LossScale{step_.mtp.per_label[static_cast<std::size_t>(layer.state - 1)], 0},
          own ? step_.loss_sum : sum(0), own ? step_.z_sum : sum(1));
    }
    case LayerKind::mtp_input: {
      BufferSet s = buffers_of(task, layer);
      embed_forward<T>(context_, {table(layer.second), {}}, s, s.matrix<T>(Buf::mtp_embedding), layer.number);
      Frame frame(context_.arena);
      s.add(recomputed_of_mtp(context_.buffers), context_.arena, Category::workspace);
      return mtp_input_forward<T>(context_, mtp_tensors(spec, local(layer.unit), weights(layer.unit)),
                                  state(task, layer.state - 1), s);
    }
    case LayerKind::departures:
      return forward_of_departures(task);
    case LayerKind::arrivals:
      return;
  }
}

// States that arrived, and those made here, for the next stage.
template <class T>
void Executor<T>::forward_of_departures(const Task& task) {
  const int chunk = task.action.chunk, m = task.action.microbatch;
  if (content(task).passes_through())
    return copy_rows<T>(context_.stream, edge_in_use(chunk, m, Region::input), edge_in_use(chunk, m, Region::output));
  const int states = context_.training ? content(task).states_out() : 1;
  for (int j = 0; j < states; ++j) copy_rows<T>(context_.stream, state(task, j), edge(task, Region::output, j));
}

// The gradients of the states made here, from the next stage.
template <class T>
void Executor<T>::backward_of_departures(const Task& task) {
  if (content(task).passes_through())
    return copy_rows<T>(context_.stream, edge(task, Region::output_gradient), edge(task, Region::input_gradient));
  for (int j = 0; j < content(task).states_out(); ++j)
    if (is_own(task, j)) copy_rows<T>(context_.stream, edge(task, Region::output_gradient, j), state_gradient(task, j));
}

template <class T>
void Executor<T>::recompute(const Task& task, const StageLayer& layer) {
  if (layer.kind == LayerKind::block)
    return block_recompute<T>(context_, layer.number, block_weights(layer), buffers_of(task, layer));
  mtp_input_recompute<T>(context_, mtp_tensors(context_.spec(), local(layer.unit), weights(layer.unit)),
                         state(task, layer.state - 1), buffers_of(task, layer));
}

template <class T>
void Executor<T>::backward_input(const Task& task, const StageLayer& layer) {
  switch (layer.kind) {
    case LayerKind::block:
      return block_backward_input<T>(context_, layer.number, block_weights(layer), block_gradients(layer, false),
                                     buffers_of(task, layer), output_gradient_of(task, layer),
                                     input_gradient_of(task, layer));
    case LayerKind::norm: {
      View<T, 2> dx = residual_gradient(task, content(task).layers);
      if (layer.state > 0) dx = output_gradient_of(task, layers(task)[static_cast<std::size_t>(task.layer) - 1]);
      return head_backward_input<T>(context_, norm_weights(layer), norm_gradients(layer), norm_buffers(task, layer),
                                    dx);
    }
    case LayerKind::mtp_input: {
      BufferSet s = buffers_of(task, layer);
      Frame frame(context_.arena);
      s.add(scratch_backward_mtp(context_.buffers), context_.arena, Category::workspace);
      return mtp_input_backward<T>(context_, layer.number,
                                   mtp_tensors(context_.spec(), local(layer.unit), weights(layer.unit)),
                                   mtp_tensors(context_.spec(), local(layer.unit), {}, vectors(layer.unit)),
                                   {table_gradient(layer.second), {}}, state(task, layer.state - 1), s,
                                   input_gradient_of(task, layers(task)[static_cast<std::size_t>(task.layer) + 1]),
                                   state_gradient(task, layer.state - 1));
    }
    case LayerKind::departures:
      return backward_of_departures(task);
    case LayerKind::arrivals:  // back to the stage before
      for (int j = 0; j < content(task).states_in; ++j)
        copy_rows<T>(context_.stream, state_gradient(task, j), edge(task, Region::input_gradient, j));
      return;
    default:
      return;
  }
}

template <class T>
void Executor<T>::backward_weight(const Task& task, const StageLayer& layer) {
  switch (layer.kind) {
    case LayerKind::block:
      return block_backward_weight<T>(context_, layer.number, block_gradients(layer, true), buffers_of(task, layer),
                                      output_gradient_of(task, layer));
    case LayerKind::mtp_input: {
      const auto g = mtp_tensors(context_.spec(), local(layer.unit), matrices(layer.unit), vectors(layer.unit));
      return mtp_input_backward_weight<T>(
          context_, g, buffers_of(task, layer),
          input_gradient_of(task, layers(task)[static_cast<std::size_t>(task.layer) + 1]));
    }
    case LayerKind::embedding: {
      EmbeddingTensors<acc_t<T>> g{table_gradient(layer.unit), {}};
      if (layer.second != no_unit) g.positions = table_gradient(layer.second);
      return embed_backward_weight<T>(context_, g, slots_.batch(task.action.chunk, task.action.microbatch, 0),
                                      residual_gradient(task, 0));
    }
    default:
      return;
  }
}

#define FORGE_INSTANTIATE(T)                                                 \
  template void Executor<T>::forward(const Task&, const StageLayer&);        \
  template void Executor<T>::recompute(const Task&, const StageLayer&);      \
  template void Executor<T>::backward_input(const Task&, const StageLayer&); \
  template void Executor<T>::backward_weight(const Task&, const StageLayer&);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge
