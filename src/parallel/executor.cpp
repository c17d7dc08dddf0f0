#include "parallel/executor.hpp"

#include "parallel/executor_pass.hpp"

namespace forge {

template <class T>
Executor<T>::Executor(const Context<T>& context, const ParameterStorage<T>& storage, ParameterGather<T>& gather,
                      GradientSync<T>* sync, const PipelinePart& part, VocabularyPart vocabulary,
                      Communicator& pipeline, PhaseTimers& timers)
    : context_(context),
      storage_(storage),
      gather_(gather),
      sync_(sync),
      part_(part),
      vocabulary_(vocabulary),
      timers_(timers),
      slots_(context.arena, context.buffers, part.schedule, part.rank, part.chunks, sync != nullptr),
      transfers_(pipeline) {
  for (const StageContent& chunk : part_.chunks)
    units_.push_back(chunk_units(storage_.units(), context_.spec().options.tied_embeddings, chunk));
}

template <class T>
void Executor<T>::run_step(BatchSource& source, std::int64_t step, LossScale scale, View<double, 1> loss_sum,
                           View<double, 1> z_sum, MtpLosses mtp) {
  context_.step = step;
  context_.training = true;
  step_ = {&source, scale, loss_sum, z_sum, std::move(mtp)};
  execute_rank(part_.schedule, part_.rank, *this);
}

// ---- forward

// Where layer l of a chunk writes.
template <class T>
View<T, 2> Executor<T>::layer_output(int chunk, int m, int l) const {
  const StageContent& c = content(chunk);
  if (l + 1 < c.layers) return slots_.block(chunk, m, l + 1).template matrix<T>(Buf::x);
  return c.final_norm() ? slots_.final_norm(chunk, m).template matrix<T>(Buf::x_final) : slots_.output<T>(chunk, m);
}

template <class T>
void Executor<T>::embed(Pass& pass, int chunk, int m) {
  const ChunkUnits& u = units(chunk);
  const ModelSpec& spec = context_.spec();
  EmbeddingTensors<const T> w{table_tensor(spec, local(u.table), pass.use(u.table)), {}};
  if (u.positions != ChunkUnits::none) w.positions = table_tensor(spec, local(u.positions), pass.use(u.positions));
  const bool goes_on = content(chunk).layers > 0 || ends_model(chunk);
  embed_forward<T>(context_, w, slots_.batch(chunk, m),
                   goes_on ? slots_.input<T>(chunk, m) : slots_.output<T>(chunk, m));
  pass.release(u.table);
  if (u.positions != ChunkUnits::none) pass.release(u.positions);
}

// Of the model's own labels; and, behind multi-token layers on earlier stages, of theirs.
template <class T>
void Executor<T>::run_head(Pass& pass, int chunk, int m, bool gradients) {
  using A = acc_t<T>;
  const ChunkUnits& u = units(chunk);
  const ModelSpec& spec = context_.spec();
  const bool normalises = content(chunk).final_norm();
  const auto output = table_tensor(spec, local(u.output), pass.use(u.output));
  HeadTensors<A> g;
  if (gradients) g.output = table_tensor(spec, local(u.output), sync_->matrices(context_.stream, u.output));
  if (normalises) {
    const HeadTensors<const T> w = head_tensors(spec, output, local(u.norm), pass.use(u.norm));
    head_forward<T>(context_, w, gradients ? &g : nullptr, slots_.final_norm(chunk, m), vocabulary_, step_.scale,
                    step_.loss_sum, step_.z_sum);
  } else {
    head_of_states(chunk, m, output, gradients ? &g : nullptr);
  }
  pass.release(u.output);
  if (normalises) pass.release(u.norm);
}

template <class T>
void Executor<T>::run_final_norm(Pass& pass, int chunk, int m) {
  const std::size_t unit = units(chunk).norm;
  const auto w = head_tensors(context_.spec(), View<const T, 2>(), local(unit), pass.use(unit));
  final_norm_forward<T>(context_, w, slots_.final_norm(chunk, m));
  pass.release(unit);
}

template <class T>
BlockTensors<const T> Executor<T>::use_layer(Pass& pass, int chunk, int l, const T** base) {
  const std::size_t unit = units(chunk).blocks[static_cast<std::size_t>(l)];
  const std::size_t experts = units(chunk).experts[static_cast<std::size_t>(l)];
  const T* weights = pass.use(unit);
  if (base) *base = weights;
  auto w = block_tensors(context_.spec(), local(unit), weights);
  if (experts != ChunkUnits::none)
    set_expert_tensors(w, context_.spec(), context_.experts_here(), local(experts), pass.use(experts));
  return w;
}

template <class T>
void Executor<T>::drop_layer(Pass& pass, int chunk, int l) {
  const std::size_t experts = units(chunk).experts[static_cast<std::size_t>(l)];
  pass.release(units(chunk).blocks[static_cast<std::size_t>(l)]);
  if (experts != ChunkUnits::none) pass.release(experts);
}

// Batch → (embedding or what arrived) → layers → (head or what is sent), in the slots of microbatch m.
template <class T>
void Executor<T>::forward_pass(int chunk, int m, BatchSource& source, int microbatch, bool gradients) {
  const ChunkUnits& u = units(chunk);
  Pass pass(*this, u.forward);
  source.load(context_.stream, microbatch, slots_.batch(chunk, m));
  if (gradients) load_shifted(chunk, m, source, microbatch);
  if (content(chunk).embedding) embed(pass, chunk, m);
  if (passes_through(chunk))
    copy_rows<T>(context_.stream, part_in_use(slots_.input<T>(chunk, m)), part_in_use(slots_.output<T>(chunk, m)));
  for (int l = 0; l < content(chunk).layers; ++l) {
    const auto w = use_layer(pass, chunk, l);
    block_forward<T>(context_, layer_of(chunk, l), w, slots_.block(chunk, m, l), layer_output(chunk, m, l));
    drop_layer(pass, chunk, l);
  }
  if (content(chunk).head)
    run_head(pass, chunk, m, gradients);
  else if (content(chunk).final_norm())
    run_final_norm(pass, chunk, m);
  if (gradients) mtp_forward(pass, chunk, m);
  if (gradients && content(chunk).head) sync_->done(context_.stream, u.output);
  if (content(chunk).mtp_layers > 0 && !content(chunk).head) hand_on_states(chunk, m, gradients);
}

template <class T>
void Executor<T>::forward(const Action& action) {
  const auto timer = timers_.start(Phase::forward);
  forward_pass(action.chunk, action.microbatch, *step_.source, action.microbatch, true);
}

// ---- backward

template <class T>
BlockTensors<acc_t<T>> Executor<T>::layer_gradients(int chunk, int l, bool with_matrices, bool with_experts) {
  const std::size_t unit = units(chunk).blocks[static_cast<std::size_t>(l)];
  const std::size_t experts = units(chunk).experts[static_cast<std::size_t>(l)];
  acc_t<T>* vectors = sync_->vectors(unit);
  auto g = block_tensors(context_.spec(), local(unit), with_matrices ? sync_->matrices(context_.stream, unit) : vectors,
                         vectors);
  if (experts != ChunkUnits::none && with_experts)
    set_expert_tensors(g, context_.spec(), context_.experts_here(), local(experts),
                       sync_->matrices(context_.stream, experts));
  return g;
}

// W of experts runs with B: the rows of later rounds exist only there.
template <class T>
void Executor<T>::experts_done(int chunk, int l) {
  const std::size_t experts = units(chunk).experts[static_cast<std::size_t>(l)];
  if (experts != ChunkUnits::none) sync_->done(context_.stream, experts);
}

template <class T>
void Executor<T>::final_norm_backward(Pass& pass, int chunk, int m, View<T, 2> dx) {
  const std::size_t unit = units(chunk).norm;
  const ModelSpec& spec = context_.spec();
  const auto w = head_tensors(spec, View<const T, 2>(), local(unit), pass.use(unit));
  const auto g = head_tensors(spec, View<acc_t<T>, 2>(), local(unit), sync_->vectors(unit));
  head_backward_input<T>(context_, w, g, slots_.final_norm(chunk, m), dx);
  pass.release(unit);
  sync_->done(context_.stream, unit);
}

template <class T>
void Executor<T>::embedding_backward(int chunk, int m, View<T, 2> d_out) {
  const ChunkUnits& u = units(chunk);
  const ModelSpec& spec = context_.spec();
  Stream& stream = context_.stream;
  const bool learned = u.positions != ChunkUnits::none;
  EmbeddingTensors<acc_t<T>> g{table_tensor(spec, local(u.table), sync_->matrices(stream, u.table)), {}};
  if (learned) g.positions = table_tensor(spec, local(u.positions), sync_->matrices(stream, u.positions));
  embed_backward_weight<T>(context_, g, slots_.batch(chunk, m), d_out);
  if (learned) sync_->done(stream, u.positions);
  sync_->done(stream, u.table);
}

// B and W in one, block by block: what recompute rebuilds and what W reads lives for one block only.
template <class T>
void Executor<T>::backward(const Action& action) {
  const auto timer = timers_.start(Phase::backward);
  const int chunk = action.chunk, m = action.microbatch;
  const StageContent& c = content(chunk);
  Pass pass(*this, units(chunk).backward);
  Frame frame(context_.arena);
  BufferSet buffers;
  buffers.add(gradient_stream(context_.buffers), context_.arena, Category::workspace);
  View<T, 2> above = buffers.matrix<T>(Buf::d_stream_a), below = buffers.matrix<T>(Buf::d_stream_b);
  const View<T, 2> lowest = c.embedding ? View<T, 2>() : slots_.input_gradient<T>(chunk, m);
  if (ends_model(chunk)) {
    take_state_gradients(chunk, m);
    mtp_backward(pass, chunk, m, above, below);
  }
  if (c.final_norm()) {
    if (c.layers == 0 && !c.embedding) above = lowest;
    final_norm_backward(pass, chunk, m, above);
  } else if (ends_model(chunk)) {
    hand_back_state_gradients(chunk, m);
  } else {
    below = above;
    above = slots_.output_gradient<T>(chunk, m);
  }
  if (passes_through(chunk)) copy_rows<T>(context_.stream, above, lowest);
  for (int l = c.layers - 1; l >= 0; --l) {
    const auto w = use_layer(pass, chunk, l);
    const View<T, 2> dx = l == 0 && !c.embedding ? lowest : below;
    block_backward<T>(context_, layer_of(chunk, l), w, layer_gradients(chunk, l, true, true), slots_.block(chunk, m, l),
                      above, dx);
    drop_layer(pass, chunk, l);
    experts_done(chunk, l);
    sync_->done(context_.stream, units(chunk).blocks[static_cast<std::size_t>(l)]);
    // The chunk's output gradient stays as it came; after the first layer the two buffers take turns.
    below = l == c.layers - 1 && !c.final_norm() ? buffers.matrix<T>(Buf::d_stream_b) : above;
    above = dx;
  }
  if (c.embedding) embedding_backward(chunk, m, above);
}

template <class T>
View<T, 2> Executor<T>::output_gradient_of(int chunk, int m, int l) const {
  const StageContent& c = content(chunk);
  if (l == c.layers - 1 && !c.final_norm()) return slots_.output_gradient<T>(chunk, m);
  if (l < 0 && !c.embedding) return slots_.input_gradient<T>(chunk, m);
  return slots_.layer_gradient<T>(chunk, m, l);
}

template <class T>
void Executor<T>::backward_input(const Action& action) {
  const auto timer = timers_.start(Phase::backward);
  const int chunk = action.chunk, m = action.microbatch;
  const StageContent& c = content(chunk);
  Pass pass(*this, units(chunk).backward);
  if (ends_model(chunk)) {
    take_state_gradients(chunk, m);
    mtp_backward_input(pass, chunk, m);
    if (c.final_norm())
      final_norm_backward(pass, chunk, m, output_gradient_of(chunk, m, c.layers - 1));
    else
      hand_back_state_gradients(chunk, m);
  }
  if (passes_through(chunk))
    copy_rows<T>(context_.stream, slots_.output_gradient<T>(chunk, m), slots_.input_gradient<T>(chunk, m));
  for (int l = c.layers - 1; l >= 0; --l) {
    const auto w = use_layer(pass, chunk, l);
    const BufferSet s = slots_.block_apart(chunk, m, l);
    block_rebuild<T>(context_, layer_of(chunk, l), w, s);
    block_backward_input<T>(context_, layer_of(chunk, l), w, layer_gradients(chunk, l, false, true), s,
                            output_gradient_of(chunk, m, l), output_gradient_of(chunk, m, l - 1));
    drop_layer(pass, chunk, l);
    experts_done(chunk, l);
  }
}

template <class T>
void Executor<T>::backward_weight(const Action& action) {
  const auto timer = timers_.start(Phase::backward);
  const int chunk = action.chunk, m = action.microbatch;
  mtp_backward_weight(chunk, m);
  for (int l = content(chunk).layers - 1; l >= 0; --l) {
    block_backward_weight<T>(context_, layer_of(chunk, l), layer_gradients(chunk, l, true, false),
                             slots_.block_apart(chunk, m, l), output_gradient_of(chunk, m, l));
    sync_->done(context_.stream, units(chunk).blocks[static_cast<std::size_t>(l)]);
  }
  if (content(chunk).embedding) embedding_backward(chunk, m, output_gradient_of(chunk, m, -1));
}

// ---- transfers

template <class T>
void Executor<T>::post_send(const Action& action) {
  const bool up = is_forward_transfer(action.op);
  const auto data = part_in_use(up ? slots_.output<T>(action.chunk, action.microbatch)
                                   : slots_.input_gradient<T>(action.chunk, action.microbatch));
  transfers_.post_send(context_.stream, action, data.data, data.size(), dtype_of<T>);
}

template <class T>
void Executor<T>::post_recv(const Action& action) {
  const bool up = is_forward_transfer(action.op);
  const auto data = part_in_use(up ? slots_.input<T>(action.chunk, action.microbatch)
                                   : slots_.output_gradient<T>(action.chunk, action.microbatch));
  transfers_.post_receive(context_.stream, action, data.data, data.size(), dtype_of<T>);
}

// To the neighbouring stage on this rank.
template <class T>
void Executor<T>::hand_over(const Action& action) {
  const Schedule& schedule = part_.schedule;
  const int stage = schedule.stage_at(part_.rank, action.chunk), m = action.microbatch;
  auto chunk_of = [&](int s) { return schedule.places[static_cast<std::size_t>(s)].chunk; };
  if (is_forward_transfer(action.op))
    copy_rows<T>(context_.stream, part_in_use(slots_.output<T>(action.chunk, m)),
                 part_in_use(slots_.input<T>(chunk_of(stage + 1), m)));
  else
    copy_rows<T>(context_.stream, slots_.input_gradient<T>(action.chunk, m),
                 slots_.output_gradient<T>(chunk_of(stage - 1), m));
}

// The first unit of the chunk's next pass.
template <class T>
void Executor<T>::gather_parameters(const Action& action) {
  const auto& list = part_.schedule.actions[static_cast<std::size_t>(part_.rank)];
  for (const Action* next = &action + 1; next != list.data() + list.size(); ++next) {
    if (next->chunk != action.chunk || !(next->op == Op::forward || computes_input_gradient(next->op))) continue;
    const auto& order = next->op == Op::forward ? units(action.chunk).forward : units(action.chunk).backward;
    if (!order.empty()) gather_.prefetch(context_.stream, order.front());
    return;
  }
}

// ---- evaluation

template <class T>
void Executor<T>::evaluate(BatchSource& source, int microbatch, View<double, 1> loss_sum, View<double, 1> z_sum) {
  context_.training = false;
  step_ = {&source, {}, loss_sum, z_sum, {}};
  const Schedule& schedule = part_.schedule;
  Stream& stream = context_.stream;
  auto rank_of = [&](int stage) { return schedule.places[static_cast<std::size_t>(stage)].rank; };
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const Place& place = schedule.places[static_cast<std::size_t>(stage)];
    if (place.rank != part_.rank) continue;
    if (stage > 0) {
      const Action arrives{Op::post_recv_forward, place.chunk, 0, rank_of(stage - 1)};
      if (arrives.peer == part_.rank) {
        hand_over({Op::hand_forward, schedule.places[static_cast<std::size_t>(stage - 1)].chunk, 0});
      } else {
        post_recv(arrives);
        transfers_.wait(stream, arrives);
      }
    }
    forward_pass(place.chunk, 0, source, microbatch, false);
    if (stage + 1 == schedule.stages() || rank_of(stage + 1) == part_.rank) continue;
    const Action leaves{Op::post_send_forward, place.chunk, 0, rank_of(stage + 1)};
    post_send(leaves);
    transfers_.wait(stream, leaves);
  }
}

template class Executor<double>;
template class Executor<float>;
template class Executor<bf16>;

}  // namespace forge
