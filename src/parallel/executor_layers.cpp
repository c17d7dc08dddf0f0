#include "core/to_size.hpp"
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
  if (!ends) return saved(task, block_at(task, position)).x;
  if (!c.final_norm()) return edge(task, Region::output);
  return saved(task, layer_of(task, LayerKind::norm, 0)).state.x;
}

template <class T>
View<T, 2> Executor<T>::residual_gradient(const Task& task, int position) const {
  const StageContent& c = content(task);
  if (position == 0 && !c.embedding) return edge(task, Region::input_gradient);
  if (position == c.layers && !c.final_norm()) return edge(task, Region::output_gradient);
  if (task.fused()) {  // the two take turns
    const GradientStream<T> stream = gradient_stream();
    return position % 2 ? stream.a : stream.b;
  }
  const std::size_t owner = position > 0 ? block_at(task, position - 1) : layer_of(task, LayerKind::embedding, 0);
  return left(task, owner).d_out;
}

template <class T>
GradientStream<T> Executor<T>::gradient_stream() const {
  GradientStream<T> stream;
  BufferLister list(context_.buffers);
  stream.list(list);
  place(list.list, opened(TaskOp::open_stream));
  return stream;
}

template <class T>
View<T, 2> Executor<T>::state(const Task& task, int number) const {
  if (!is_own(task, number)) return edge(task, Region::input, number);
  StateBuffers<T> kept = saved(task, layer_of(task, LayerKind::norm, number)).state;
  if (kept.state.empty()) {
    BufferLister list(context_.buffers);
    kept.list_state(list);
    place(list.list, opened(TaskOp::open_state));
  }
  return kept.state;
}

// The gradient of a state from another stage gathers where the head keeps it or, without a head, where it arrives.
template <class T>
View<T, 2> Executor<T>::state_gradient(const Task& task, int number) const {
  if (!is_own(task, number) && !content(task).head) return edge(task, Region::output_gradient, number);
  const LayerKind keeper = is_own(task, number) ? LayerKind::norm : LayerKind::head;
  return saved(task, layer_of(task, keeper, number)).state.d_state;
}

template <class T>
View<T, 2> Executor<T>::output_of(const Task& task, const StageLayer& block) const {
  if (block.state == 0) return residual(task, position_of(task, block) + 1);
  return saved(task, layer_of(task, LayerKind::norm, block.state)).state.x;
}

template <class T>
View<T, 2> Executor<T>::output_gradient_of(const Task& task, const StageLayer& block) const {
  if (block.state == 0) return residual_gradient(task, position_of(task, block) + 1);
  return task.fused() ? gradient_stream().a : left(task, layer_of(task, LayerKind::block, block.state)).d_out;
}

template <class T>
View<T, 2> Executor<T>::input_gradient_of(const Task& task, const StageLayer& block) const {
  if (block.state == 0) return residual_gradient(task, position_of(task, block));
  return task.fused() ? gradient_stream().b : left(task, layer_of(task, LayerKind::mtp_input, block.state)).mtp.d_out;
}

// ---- buffers, weights and gradients of a layer

template <class T>
LayerBuffers<T> Executor<T>::saved(const Task& task, std::size_t l) const {
  LayerBuffers<T> b;
  place(saved_of(context_.buffers, content(task), layers(task)[l], b),
        slots_.saved(task.action.chunk, task.action.microbatch, l));
  return b;
}

template <class T>
LayerBuffers<T> Executor<T>::left(const Task& task, std::size_t l) const {
  LayerBuffers<T> b;
  place(left_of(context_.buffers, content(task), layers(task)[l], b),
        slots_.left(task.action.chunk, task.action.microbatch, l));
  return b;
}

template <class T>
LayerBuffers<T> Executor<T>::buffers_of(const Task& task, const StageLayer& layer) const {
  const auto l = to_size(task.layer);
  const BufferContext& c = context_.buffers;
  LayerBuffers<T> b = saved(task, l);
  if (task.op == TaskOp::forward) return b;
  if (!task.fused()) {
    place(left_of(c, content(task), layer, b), slots_.left(task.action.chunk, task.action.microbatch, l));
    return b;
  }
  if (void* memory = opened(TaskOp::open_recomputed)) place(recomputed_of(c, layer, b), memory);
  if (void* memory = opened(TaskOp::open_gradients)) place(gradients_of(c, layer, b), memory);
  return b;
}

template <class T>
BlockParameters<const T> Executor<T>::weights_in(const Task& task, const StageLayer& layer) const {
  BlockParameters<const T> w;
  if (task.op == TaskOp::backward_weight) return w;
  bind(w, context_.spec(), local(layer.unit), weights(layer.unit));
  if (layer.kind == LayerKind::block && layer.second != no_unit)
    bind(w, context_.spec(), local(layer.second), weights(layer.second));
  return w;
}

// B adds to vectors, W to matrices and vectors; W of experts runs with B: the rows of later rounds exist only there.
template <class T>
BlockParameters<acc_t<T>> Executor<T>::gradients_in(const Task& task, const StageLayer& layer) const {
  BlockParameters<acc_t<T>> g;
  const bool of_weights = task.op == TaskOp::backward_weight;
  if (!of_weights && task.op != TaskOp::backward_input) return g;
  bind<acc_t<T>>(g, context_.spec(), local(layer.unit), of_weights ? matrices(layer.unit) : nullptr,
                 vectors(layer.unit));
  if (layer.kind == LayerKind::block && layer.second != no_unit && !of_weights)
    bind(g, context_.spec(), local(layer.second), matrices(layer.second));
  return g;
}

template <class T>
View<acc_t<T>, 2> Executor<T>::table_gradient(std::size_t unit) const {
  return table_of(context_.spec(), local(unit), matrices(unit));
}

// ---- layers, each with its passes

template <class T>
void Executor<T>::run_layer(const Task& task) {
  // In the order of LayerKind.
  constexpr void (Executor::*run[])(const Task&, const StageLayer&) = {
      &Executor::run_arrivals, &Executor::run_embedding, &Executor::run_block,     &Executor::run_norm,
      &Executor::run_head,     &Executor::run_mtp_input, &Executor::run_departures};
  const StageLayer& layer = layers(task)[to_size(task.layer)];
  context_.fp8_block = layer.kind == LayerKind::block && context_.buffers.fp8.has_block(layer.number);
  (this->*run[to_size(layer.kind)])(task, layer);
}

template <class T>
void Executor<T>::run_embedding(const Task& task, const StageLayer& layer) {
  const Embedding<T> embedding{context_, batch(task, 0)};
  if (task.op == TaskOp::forward) {
    EmbeddingParameters<const T> w{table(layer.unit), {}};
    if (layer.second != no_unit) w.positions = table(layer.second);
    return embedding.forward(w, residual(task, 0));
  }
  EmbeddingParameters<acc_t<T>> g{table_gradient(layer.unit), {}};
  if (layer.second != no_unit) g.positions = table_gradient(layer.second);
  embedding.backward_weight(g, residual_gradient(task, 0));
}

template <class T>
void Executor<T>::run_block(const Task& task, const StageLayer& layer) {
  const LayerBuffers<T> buffers = buffers_of(task, layer);
  const Batch rows = batch(task, layer.state);
  const View<T, 2> x = layer.state == 0 ? residual(task, position_of(task, layer)) : buffers.x;
  Block<T> block{{context_, layer.number, rows, x}, buffers.block, weights_in(task, layer), gradients_in(task, layer)};
  switch (task.op) {
    case TaskOp::forward:
      return block.forward(output_of(task, layer));
    case TaskOp::recompute:
      return block.recompute();
    case TaskOp::backward_input:
      return block.backward_input(output_gradient_of(task, layer), input_gradient_of(task, layer));
    default:
      return block.backward_weight(output_gradient_of(task, layer));
  }
}

template <class T>
void Executor<T>::run_mtp_input(const Task& task, const StageLayer& layer) {
  const Batch rows = batch(task, layer.state);
  const StageLayer& block = layers(task)[to_size(task.layer) + 1];
  MtpInput<T> input{context_,
                    layer.number,
                    rows,
                    state(task, layer.state - 1),
                    buffers_of(task, layer).mtp,
                    weights_in(task, layer).mtp,
                    gradients_in(task, layer).mtp};
  switch (task.op) {
    case TaskOp::forward:
      return input.forward({table(layer.second), {}}, saved(task, to_size(task.layer) + 1).x);
    case TaskOp::recompute:
      return input.recompute();
    case TaskOp::backward_input:
      return input.backward_input({table_gradient(layer.second), {}}, input_gradient_of(task, block),
                                  state_gradient(task, layer.state - 1));
    default:
      return input.backward_weight(input_gradient_of(task, block));
  }
}

template <class T>
void Executor<T>::run_norm(const Task& task, const StageLayer& layer) {
  const StateBuffers<T> b = saved(task, to_size(task.layer)).state;
  const bool of_depth = layer.state > 0, forward = task.op == TaskOp::forward;
  StateNorm<T> norm{context_, of_depth ? b.x : residual(task, content(task).layers), b.norm};
  if (of_depth) {
    norm.w = head_of_depth({}, weights_in(task, layer).mtp);
    norm.g = head_of_depth({}, gradients_in(task, layer).mtp);
  } else {
    bind(norm.w, context_.spec(), local(layer.unit), weights(layer.unit));
    if (!forward) bind<acc_t<T>>(norm.g, context_.spec(), local(layer.unit), {}, vectors(layer.unit));
  }
  if (forward) return norm.forward(state(task, layer.state));
  norm.backward_input(state_gradient(task, layer.state),
                      of_depth ? output_gradient_of(task, layers(task)[to_size(task.layer) - 1])
                               : residual_gradient(task, content(task).layers));
}

template <class T>
void Executor<T>::run_head(const Task& task, const StageLayer& layer) {
  Head<T> head{context_, batch(task, layer.state).labels, vocabulary_, table(layer.unit)};
  if (context_.training) head.g = table_gradient(layer.unit);
  const View<T, 2> n = state(task, layer.state), d_n = state_gradient(task, layer.state);
  if (layer.state == 0 && !step_.source_sums.empty())
    head.by_source = {batch(task, layer.state).sources, step_.source_sums};
  if (layer.state == 0) return head.forward(n, d_n, step_.scale, step_.loss_sum, step_.z_sum);
  const auto depth = to_size(layer.state - 1);
  const auto sum = [&](int which) { return View<double, 1>(step_.mtp.sums.row(layer.state - 1) + which, {{1}}); };
  head.forward(n, d_n, {step_.mtp.per_label[depth], 0}, sum(0), sum(1));
}

// States that arrived, and those made here, for the next stage; backward the gradients of those made here.
template <class T>
void Executor<T>::run_departures(const Task& task, const StageLayer&) {
  const bool forward = task.op == TaskOp::forward;
  const int chunk = task.action.chunk, m = task.action.microbatch;
  if (content(task).passes_through())
    return copy_rows<T>(context_.stream, edge_in_use(chunk, m, forward ? Region::input : Region::output_gradient),
                        edge_in_use(chunk, m, forward ? Region::output : Region::input_gradient));
  const int states = context_.training ? content(task).states_out() : 1;
  for (int j = 0; j < states; ++j)
    if (forward)
      copy_rows<T>(context_.stream, state(task, j), edge(task, Region::output, j));
    else if (is_own(task, j))
      copy_rows<T>(context_.stream, edge(task, Region::output_gradient, j), state_gradient(task, j));
}

// Gradients of the states from the stage before, back to it.
template <class T>
void Executor<T>::run_arrivals(const Task& task, const StageLayer&) {
  for (int j = 0; j < content(task).states_in; ++j)
    copy_rows<T>(context_.stream, state_gradient(task, j), edge(task, Region::input_gradient, j));
}

#define FORGE_INSTANTIATE(T) template void Executor<T>::run_layer(const Task&);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
