#include "parallel/executor.hpp"

#include <string>

namespace forge {

namespace {

int slots_of(const SlotTable& table) {
  return std::max(1, table.total());
}

int last_backward_of(const Schedule& schedule) {
  int last = 0;
  for (const auto& action : schedule.actions[0])
    if (computes_weight_gradient(action.op)) last = action.microbatch;
  return last;
}

}  // namespace

template <class T>
Executor<T>::Executor(const Context<T>& context, const ParameterStorage<T>& storage, const Schedule& schedule,
                      GradientSync* sync, PhaseTimers& timers)
    : context_(context),
      storage_(storage),
      schedule_(schedule),
      table_(assign_slots(schedule, 0, Lifetime::saved_for_weight)),
      sync_(sync),
      timers_(timers),
      last_backward_(last_backward_of(schedule)) {
  const ModelSpec& spec = context_.spec();
  const auto& units = storage_.units();
  auto weights = [&](std::size_t u) { return static_cast<const T*>(storage_.unit(u).copy.data); };
  auto gradients = [&](std::size_t u) { return storage_.unit(u).gradient.data; };
  embedding_ = embedding_tensors(spec, units.front(), weights(0));
  embedding_gradient_ = embedding_tensors(spec, units.front(), gradients(0));
  for (std::size_t u = 1; u < head_unit(); ++u) {
    blocks_.push_back(block_tensors(spec, units[u], weights(u)));
    block_gradients_.push_back(block_tensors(spec, units[u], gradients(u)));
  }
  head_ = head_tensors(spec, units.back(), weights(head_unit()), embedding_.tokens);
  head_gradient_ = head_tensors(spec, units.back(), gradients(head_unit()), embedding_gradient_.tokens);

  slots_.resize(static_cast<std::size_t>(slots_of(table_)));
  for (auto& slot : slots_) {
    slot.head.add(batch_buffers(context_.buffers), context_.arena, Category::data);
    for (std::size_t l = 0; l < blocks_.size(); ++l) {
      BufferSet set = slot.head;
      set.add(saved_of_block(context_.buffers), context_.arena, Category::activations);
      slot.blocks.push_back(set);
    }
    slot.head.add(saved_of_head(context_.buffers), context_.arena, Category::activations);
  }
}

template <class T>
void Executor<T>::run_step(BatchSource& source, std::int64_t step, LossScale scale, View<double, 1> loss_sum,
                           View<double, 1> z_sum) {
  context_.step = step;
  context_.training = true;
  step_ = {&source, scale, loss_sum, z_sum};
  execute_rank(schedule_, 0, *this);
}

template <class T>
void Executor<T>::evaluate(BatchSource& source, int microbatch, View<double, 1> loss_sum, View<double, 1> z_sum) {
  context_.training = false;
  Slot& slot = slots_.front();
  forward_layers(slot, source, microbatch);
  head_forward<T>(context_, head_, nullptr, slot.head, {}, loss_sum, z_sum);
}

// Batch → embedding → blocks; leaves the last residual in the head's slot.
template <class T>
void Executor<T>::forward_layers(Slot& slot, BatchSource& source, int microbatch) {
  source.load(context_.stream, microbatch, slot.head);
  auto input_of = [&](std::size_t l) {
    return l < slot.blocks.size() ? slot.blocks[l].template matrix<T>(Buf::x)
                                  : slot.head.template matrix<T>(Buf::x_final);
  };
  embed_forward<T>(context_, embedding_, slot.head, input_of(0));
  for (std::size_t l = 0; l < blocks_.size(); ++l)
    block_forward<T>(context_, static_cast<std::int64_t>(l), blocks_[l], slot.blocks[l], input_of(l + 1));
}

template <class T>
void Executor<T>::forward(const Action& action) {
  const auto timer = timers_.start(Phase::forward);
  Slot& slot = slots_[static_cast<std::size_t>(table_.at(action.chunk, action.microbatch))];
  forward_layers(slot, *step_.source, action.microbatch);
  head_forward<T>(context_, head_, &head_gradient_, slot.head, step_.scale, step_.loss_sum, step_.z_sum);
}

template <class T>
void Executor<T>::backward(const Action& action) {
  const auto timer = timers_.start(Phase::backward);
  Slot& slot = slots_[static_cast<std::size_t>(table_.at(action.chunk, action.microbatch))];
  Frame frame(context_.arena);
  BufferSet stream;
  stream.add(gradient_stream(context_.buffers), context_.arena, Category::workspace);
  View<T, 2> above = stream.matrix<T>(Buf::d_stream_a), below = stream.matrix<T>(Buf::d_stream_b);
  head_backward_input<T>(context_, head_, head_gradient_, slot.head, above);
  unit_done(head_unit(), action.microbatch);
  for (std::size_t l = blocks_.size(); l-- > 0;) {
    block_backward<T>(context_, static_cast<std::int64_t>(l), blocks_[l], block_gradients_[l], slot.blocks[l], above,
                      below);
    unit_done(l + 1, action.microbatch);
    std::swap(above, below);
  }
  embed_backward_weight<T>(context_, embedding_gradient_, slot.head, above);
  unit_done(0, action.microbatch);
}

// A unit's gradient is complete after the last microbatch: its reduction starts behind the rest of backward.
template <class T>
void Executor<T>::unit_done(std::size_t unit, int microbatch) {
  if (sync_ && microbatch == last_backward_) {
    const auto& g = storage_.unit(unit).gradient;
    sync_->post(context_.stream, g.data, g.size(), dtype_of<acc_t<T>>);
  }
}

template <class T>
void Executor<T>::wait_gradients(const Action&) {
  const auto timer = timers_.start(Phase::reduce);
  if (sync_) sync_->wait(context_.stream);
}

template <class T>
void Executor<T>::refuse(const Action& action) const {
  throw Error("the executor of one stage was asked for " + std::string(name_of(action.op)));
}

template class Executor<double>;
template class Executor<float>;
template class Executor<bf16>;

}  // namespace forge
