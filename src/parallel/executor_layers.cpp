#include "core/to_size.hpp"
#include "device/flip_bit.hpp"
#include "parallel/executor.hpp"
#include "parallel/layer_parameters.hpp"

namespace forge {

template <class T>
class Executor<T>::LayerTask {
 public:
  LayerTask(Executor& executor, const Task& task)
      : executor_(executor),
        inputs_(executor.inputs_),
        task_(task),
        stage_(executor.content(task.action.chunk)),
        layers_(executor.share_.layers[to_size(task.action.chunk)]),
        at_(to_size(task.layer)),
        layer_(layers_[at_]),
        context_{state(), executor.services_},
        pass_(pass_of(task, executor.share_)),
        parameters_{executor.storage_, context_.spec(), pass_} {}

  void run() {
    switch (layer_.kind) {
      case LayerKind::arrivals:
        return run_arrivals();
      case LayerKind::embedding:
        return run_embedding();
      case LayerKind::block:
        return run_block();
      case LayerKind::norm:
        return run_norm();
      case LayerKind::head:
        return run_head();
      case LayerKind::mtp_input:
        return run_mtp_input();
      case LayerKind::departures:
        return run_departures();
    }
  }

 private:
  // All that holds for this task, and for no other.
  PassState<T> state() const {
    PassState<T> state = executor_.step_;
    if (task_.track >= 0) {
      state.track = task_.track;
      state.stack = &executor_.stack_of(task_);
      state.tracks = &executor_.pair_->tracks;
    }
    if (layer_.recomputes_all) state.own_buffers = &executor_.buffers_of(layer_);
    RoundingPass& rounding = state.rounding;
    rounding.block = layer_.kind == LayerKind::block && executor_.services_.buffers.rounding.has_block(layer_.number);
    if (!rounding.block) return state;
    const bool recomputes = task_.op == TaskOp::recompute;
    rounding.samples = batch(layer_.state).samples;
    rounding.weights = executor_.gather_.coded().amaxes_of(layer_);
    rounding.saved = {buffers(LayerMemory::saved, at_).block.amaxes.rows, recomputes};
    rounding.layer = layer_.number;
    rounding.records = state.training && !recomputes;
    // Numbers that a recomputed pass rounds again have been counted by the first one.
    if (recomputes) rounding.counts = {};
    return state;
  }

  // ---- passes, by kind

  void run_embedding() {
    const Embedding<T> embedding{context_, batch(0)};
    if (is_forward()) {
      EmbeddingParameters<const T> w{parameters_.table(layer_.unit), {}};
      if (layer_.second != no_unit) w.positions = parameters_.table(layer_.second);
      return embedding.forward(w, output());
    }
    EmbeddingParameters<acc_t<T>> g{parameters_.table_gradient(layer_.unit), {}};
    if (layer_.second != no_unit) g.positions = parameters_.table_gradient(layer_.second);
    embedding.backward_weight(g, output_gradient());
  }

  void run_block() {
    const LayerBuffers<T> buffers = this->buffers();
    const Batch rows = batch(layer_.state);
    Block<T> block{
        {context_, layer_.number, rows, input(at_)}, buffers.block, parameters_.weights(), parameters_.gradients()};
    if (is_forward()) {
      executor_.gather_.coded().count(context_, executor_.storage_, layer_);
      block.forward(output());
      if (executor_.miscomputes_) flip_bit_of(context_.stream, reinterpret_cast<std::byte*>(output().data), sizeof(T));
      return;
    }
    if (task_.op == TaskOp::recompute) return block.recompute();
    if (task_.op == TaskOp::backward) return block.backward(output_gradient(), input_gradient());
    if (task_.op == TaskOp::backward_input) return block.backward_input(output_gradient(), input_gradient());
    block.backward_weight(output_gradient());
  }

  void run_mtp_input() {
    const Batch rows = batch(layer_.state);
    const View<T, 2> before = state(layer_.state - 1);
    MtpInput<T> input{
        context_, layer_.number, rows, before, buffers().mtp, parameters_.weights().mtp, parameters_.gradients().mtp};
    if (is_forward()) return input.forward({parameters_.table(layer_.second), {}}, output());
    if (task_.op == TaskOp::recompute) return input.recompute();
    if (pass_.pass == Pass::backward_weight) return input.backward_weight(output_gradient());
    input.backward_input({parameters_.table_gradient(layer_.second), {}}, output_gradient(),
                         state_gradient(layer_.state - 1));
  }

  void run_norm() {
    const LayerBuffers<T> saved = buffers(LayerMemory::saved, at_);
    StateNorm<T> norm{context_, input(at_), saved.state.norm};
    parameters_.bind_norm(norm);
    if (is_forward()) return norm.forward(state(layer_.state));
    norm.backward_input(state_gradient(layer_.state), input_gradient());
  }

  void run_head() {
    const Batch rows = batch(layer_.state);
    Head<T> head{context_, rows.labels, executor_.vocabulary_, parameters_.table(layer_.unit)};
    if (context_.training) head.g = parameters_.table_gradient(layer_.unit);
    head.frozen = context_.training && layer_.frozen;
    const View<T, 2> n = state(layer_.state), d_n = state_gradient(layer_.state);
    if (layer_.state == 0 && !inputs_.source_sums.empty()) head.by_source = {rows.sources, inputs_.source_sums};
    if (const PairInputs& pairs = inputs_.pairs; !pairs.sums.empty() && inputs_.row_scores.empty())
      head.pairs = {rows.texts, rows.references, pairs.beta, pairs.smoothing, pairs.sums};
    if (layer_.state == 0) head.scores = inputs_.row_scores, head.taken = executor_.row_logits_;
    if (layer_.state == 0) return head.forward(n, d_n, inputs_.scale, inputs_.loss_sum, inputs_.z_sum);
    const auto depth = to_size(layer_.state - 1);
    const auto sum = [&](int which) { return View<double, 1>(inputs_.mtp.sums.row(layer_.state - 1) + which, {{1}}); };
    head.forward(n, d_n, {inputs_.mtp.per_label[depth], 0}, sum(0), sum(1));
  }

  // States that arrived, and those made here, for the next stage; backward the gradients of those made here.
  void run_departures() {
    if (stage_.passes_through())
      return copy(edge(is_forward() ? Region::input : Region::output_gradient),
                  edge(is_forward() ? Region::output : Region::input_gradient));
    const int states = context_.training ? stage_.states_out() : 1;
    for (int j = 0; j < states; ++j)
      if (is_forward())
        copy(state(j), edge(Region::output, j));
      else if (is_own(j))
        copy(edge(Region::output_gradient, j), state_gradient(j));
  }

  // Gradients of the states from the stage before, back to it.
  void run_arrivals() {
    for (int j = 0; j < stage_.states_in; ++j) copy(state_gradient(j), edge(Region::input_gradient, j));
  }

  bool is_forward() const { return task_.op == TaskOp::forward; }
  void copy(View<const T, 2> from, View<T, 2> to) { copy_rows<T>(context_.stream, from, to); }

  // ---- the residual stream, or that of a depth. What one layer makes of it the next one keeps, if it reads it; else
  // it stands on an edge of the stage.

  bool has_reader(std::size_t l) const {
    if (l + 1 == layers_.size()) return false;
    const LayerKind next = layers_[l + 1].kind;
    return next == LayerKind::block || next == LayerKind::norm;
  }
  View<T, 2> input(std::size_t l) const {
    const LayerBuffers<T> b = buffers(LayerMemory::saved, l);
    const View<T, 2> own = layers_[l].kind == LayerKind::norm ? b.state.x : b.x;
    return own.empty() ? edge(Region::input) : own;
  }
  View<T, 2> output() const { return has_reader(at_) ? input(at_ + 1) : edge(Region::output); }
  View<T, 2> output_gradient(std::size_t l) const {
    if (!has_reader(l)) return edge(Region::output_gradient);
    if (!task_.fused()) return buffers(LayerMemory::left, l).d_out;
    LayerBuffers<T> b;
    point_to_frame(b, LayerMemory::stream, l);
    return b.stream[to_size(l % 2)];
  }
  View<T, 2> output_gradient() const { return output_gradient(at_); }
  View<T, 2> input_gradient() const {
    return at_ > 0 && has_reader(at_ - 1) ? output_gradient(at_ - 1) : edge(Region::input_gradient);
  }

  // ---- normalised states, by number

  std::size_t find(LayerKind kind, int state) const {
    for (std::size_t l = 0; l < layers_.size(); ++l)
      if (layers_[l].kind == kind && layers_[l].state == state) return l;
    throw Error("a stage has no layer of a kind and state that a task asks for");
  }
  // Whether a state is made here.
  bool is_own(int state) const { return stage_.final_norm() || state >= stage_.states_in; }
  View<T, 2> state(int number) const {
    if (!is_own(number)) return edge(Region::input, number);
    const std::size_t norm = find(LayerKind::norm, number);
    LayerBuffers<T> b = buffers(LayerMemory::saved, norm);
    point_to_frame(b, LayerMemory::state, norm);
    return b.state.state;
  }
  // The gradient of a state from another stage gathers where the head keeps it or, without a head, where it arrives.
  View<T, 2> state_gradient(int number) const {
    if (!is_own(number) && !stage_.head) return edge(Region::output_gradient, number);
    return buffers(LayerMemory::saved, find(is_own(number) ? LayerKind::norm : LayerKind::head, number)).state.d_state;
  }
  View<T, 2> edge(Region region) const { return executor_.edge(region, task_.action.chunk, task_.action.microbatch); }
  View<T, 2> edge(Region region, int state) const {
    return executor_.slots_.template edge<T>(region, task_.action.chunk, task_.action.microbatch, state, 1);
  }

  // ---- buffers of a layer

  Batch batch(int state) const { return executor_.slots_.batch(task_.action.chunk, task_.action.microbatch, state); }

  void point_to_slot(LayerBuffers<T>& b, LayerMemory what, std::size_t l) const {
    const Region region = what == LayerMemory::saved ? Region::saved : Region::left;
    place(buffers_in(what, executor_.buffers_of(layers_[l]), stage_, layers_[l], b),
          executor_.slots_.part(region, task_.action.chunk, task_.action.microbatch, l));
  }
  // To nothing where no such frame is open.
  void point_to_frame(LayerBuffers<T>& b, LayerMemory what, std::size_t l) const {
    if (const auto& frame = executor_.frames_of(task_)[to_size(what)])
      place(buffers_in(what, executor_.buffers_of(layers_[l]), stage_, layers_[l], b), frame->memory);
  }
  // What layer l has in a slot.
  LayerBuffers<T> buffers(LayerMemory what, std::size_t l) const {
    LayerBuffers<T> b;
    point_to_slot(b, what, l);
    return b;
  }
  // All that the layer works on: what it saved, and in backward what is recomputed and left.
  LayerBuffers<T> buffers() const {
    LayerBuffers<T> b = buffers(LayerMemory::saved, at_);
    if (!is_forward() && !task_.fused()) point_to_slot(b, LayerMemory::left, at_);
    for (const LayerMemory frame : {LayerMemory::recomputed, LayerMemory::gradients}) point_to_frame(b, frame, at_);
    return b;
  }

  Executor& executor_;
  const StepInputs& inputs_;
  const Task& task_;
  const StageContent& stage_;
  const std::vector<StageLayer>& layers_;
  std::size_t at_;  // in the list
  const StageLayer& layer_;
  const Context<T> context_;
  LayerPass pass_;
  LayerParameters<T> parameters_;
};

template <class T>
void Executor<T>::run_layer(const Task& task) {
  const NotedRows noted(step_.operations);
  LayerTask(*this, task).run();
}

#define FORGE_INSTANTIATE(T) template void Executor<T>::run_layer(const Task&);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
