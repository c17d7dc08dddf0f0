#include "layout/chunk_buffers.hpp"
#include "model/mtp_buffers.hpp"
#include "nn/mtp.hpp"
#include "parallel/executor.hpp"
#include "parallel/executor_pass.hpp"

// Multi-token prediction: the chunk's k-th layer of it (from 0) is layer `layers + k` of the chunk. States (S,C) are
// what layers of it and the head read: the final norm's output is state 0, that of depth d's own norm is state d. A
// state is made on one stage and handed on, stage by stage, up to the head; its gradient comes back the same way.

namespace forge {

// A depth's part in a pass: its parameters and gradients beside those of its block.
template <class T>
struct Executor<T>::MtpLayer {
  BlockTensors<const T> w;
  MtpTensors<const T> module;
  BlockTensors<acc_t<T>> g;
  MtpTensors<acc_t<T>> module_g;
};

// The buffers of the i-th state that the chunk makes: n_final and d_n_final.
template <class T>
BufferSet Executor<T>::own_state(int chunk, int m, int i) const {
  const StageContent& c = content(chunk);
  if (c.final_norm() && i == 0) return slots_.final_norm(chunk, m);
  return slots_.block(chunk, m, c.layers + i - c.final_norm());
}

// Those of the state that the chunk's k-th layer goes on from. The gradient of one from another stage gathers where the
// head keeps it or, without a head, where it arrives.
template <class T>
BufferSet Executor<T>::before_mtp(int chunk, int m, int k) const {
  const StageContent& c = content(chunk);
  if (k > 0 || c.final_norm()) return own_state(chunk, m, k - 1 + c.final_norm());
  const int last = c.streams_in - 1;
  if (c.head) return slots_.template state_at_head<T>(chunk, m, last);
  BufferSet state;
  state.name(Buf::n_final, slots_.state_of(slots_.template input<T>(chunk, m), last));
  state.name(Buf::d_n_final, slots_.state_of(slots_.template output_gradient<T>(chunk, m), last));
  return state;
}

// The batch of the depths whose layers or losses are here.
template <class T>
void Executor<T>::load_shifted(int chunk, int m, BatchSource& source, int microbatch) {
  const StageContent& c = content(chunk);
  for (int j = 1; j < states_at_head(c, true); ++j)
    source.load_shifted(context_.stream, microbatch, j, slots_.template state_at_head<T>(chunk, m, j));
  for (int k = 0; k < c.mtp_layers; ++k)
    source.load_shifted(context_.stream, microbatch, c.streams_in + k, slots_.block(chunk, m, c.layers + k));
}

// Losses of the states that other stages made. `g` null: evaluation, of the first.
template <class T>
void Executor<T>::head_of_states(int chunk, int m, View<const T, 2> output, HeadTensors<acc_t<T>>* g) {
  const HeadTensors<const T> w{output, {}, {}};
  for (int j = 0; j < states_at_head(content(chunk), g != nullptr); ++j) {
    const BufferSet s = slots_.template state_at_head<T>(chunk, m, j);
    if (j == 0)
      head_forward<T>(context_, w, g, s, vocabulary_, step_.scale, step_.loss_sum, step_.z_sum);
    else
      head_forward<T>(context_, w, g, s, vocabulary_, scale_of_depth(j), sum_of_depth(j, 0), sum_of_depth(j, 1));
  }
}

// States that arrived, and those made here, for the next stage.
template <class T>
void Executor<T>::hand_on_states(int chunk, int m, bool training) {
  const StageContent& c = content(chunk);
  const View<T, 2> out = slots_.template output<T>(chunk, m);
  const int arrived = c.final_norm() ? 0 : (training ? c.streams_in : 1);
  for (int j = 0; j < arrived; ++j)
    copy_rows<T>(context_.stream, slots_.state_of(slots_.template input<T>(chunk, m), j), slots_.state_of(out, j));
  const int made = training ? own_states(chunk) : c.final_norm();
  for (int i = 0; i < made; ++i)
    copy_rows<T>(context_.stream, own_state(chunk, m, i).template matrix<T>(Buf::n_final),
                 slots_.state_of(out, arrived + i));
}

// The gradients of the states made here, from the next stage.
template <class T>
void Executor<T>::take_state_gradients(int chunk, int m) {
  const StageContent& c = content(chunk);
  if (c.head) return;  // it left them in forward
  const int arrived = c.final_norm() ? 0 : c.streams_in;
  for (int i = 0; i < own_states(chunk); ++i)
    copy_rows<T>(context_.stream, slots_.state_of(slots_.template output_gradient<T>(chunk, m), arrived + i),
                 own_state(chunk, m, i).template matrix<T>(Buf::d_n_final));
}

// The gradients of those that arrived, to the stage before.
template <class T>
void Executor<T>::hand_back_state_gradients(int chunk, int m) {
  const StageContent& c = content(chunk);
  const View<T, 2> back = slots_.template input_gradient<T>(chunk, m);
  for (int j = 0; j < c.streams_in; ++j) {
    const View<T, 2> from = c.head ? slots_.template state_at_head<T>(chunk, m, j).template matrix<T>(Buf::d_n_final)
                                   : slots_.state_of(slots_.template output_gradient<T>(chunk, m), j);
    copy_rows<T>(context_.stream, from, slots_.state_of(back, j));
  }
}

template <class T>
void Executor<T>::mtp_forward(Pass& pass, int chunk, int m) {
  const ChunkUnits& u = units(chunk);
  const ModelSpec& spec = context_.spec();
  for (int k = 0; k < content(chunk).mtp_layers; ++k) {
    const int l = content(chunk).layers + k;
    const std::int64_t layer = layer_of(chunk, l);
    const LocalUnit& unit = local(u.blocks[static_cast<std::size_t>(l)]);
    const BufferSet s = slots_.block(chunk, m, l);
    const EmbeddingTensors<const T> table{table_tensor(spec, local(u.shared_table), pass.use(u.shared_table)), {}};
    embed_forward<T>(context_, table, s, s.matrix<T>(Buf::mtp_embedding), layer);
    pass.release(u.shared_table);
    const T* base = nullptr;
    const auto w = use_layer(pass, chunk, l, &base);
    const MtpTensors<const T> module = mtp_tensors(spec, unit, base, base);
    {
      Frame frame(context_.arena);
      BufferSet all = s;
      all.add(rebuilt_of_mtp(context_.buffers), context_.arena, Category::workspace);
      mtp_input_forward<T>(context_, module, before_mtp(chunk, m, k).template matrix<T>(Buf::n_final), all);
    }
    block_forward<T>(context_, layer, w, s, s.matrix<T>(Buf::x_final));
    mtp_head(pass, chunk, m, k, module);
    drop_layer(pass, chunk, l);
  }
}

// The module's norm and, where the head is here, the loss.
template <class T>
void Executor<T>::mtp_head(Pass& pass, int chunk, int m, int k, const MtpTensors<const T>& module) {
  const BufferSet s = slots_.block(chunk, m, content(chunk).layers + k);
  if (!content(chunk).head) return final_norm_forward<T>(context_, head_tensors(View<const T, 2>(), module), s);
  const std::size_t unit = units(chunk).output;
  const int depth = content(chunk).streams_in + k;
  const auto w = head_tensors(table_tensor(context_.spec(), local(unit), pass.use(unit)), module);
  HeadTensors<acc_t<T>> g;
  g.output = table_tensor(context_.spec(), local(unit), sync_->matrices(context_.stream, unit));
  head_forward<T>(context_, w, &g, s, vocabulary_, scale_of_depth(depth), sum_of_depth(depth, 0),
                  sum_of_depth(depth, 1));
  pass.release(unit);
}

template <class T>
typename Executor<T>::MtpLayer Executor<T>::use_mtp(Pass& pass, int chunk, int l, bool with_matrices) {
  const std::size_t unit = units(chunk).blocks[static_cast<std::size_t>(l)];
  const T* base = nullptr;
  MtpLayer layer;
  layer.w = use_layer(pass, chunk, l, &base);
  layer.module = mtp_tensors(context_.spec(), local(unit), base, base);
  layer.g = layer_gradients(chunk, l, with_matrices, true);
  acc_t<T>* vectors = sync_->vectors(unit);
  layer.module_g = mtp_tensors(context_.spec(), local(unit),
                               with_matrices ? sync_->matrices(context_.stream, unit) : vectors, vectors);
  return layer;
}

// d_x(S,C) of depth k's block → the gradient of the head before it, and the token table's. `s` has rebuilt_of_mtp.
template <class T>
void Executor<T>::mtp_input_gradient(int chunk, int m, int k, const MtpLayer& layer, const BufferSet& kept,
                                     View<T, 2> d_x) {
  Frame frame(context_.arena);
  BufferSet s = kept;
  s.add(scratch_backward_mtp(context_.buffers), context_.arena, Category::workspace);
  const std::size_t unit = units(chunk).shared_table;
  const EmbeddingTensors<acc_t<T>> table{
      table_tensor(context_.spec(), local(unit), sync_->matrices(context_.stream, unit)), {}};
  const BufferSet before = before_mtp(chunk, m, k);
  mtp_input_backward<T>(context_, layer_of(chunk, content(chunk).layers + k), layer.module, layer.module_g, table,
                        before.matrix<T>(Buf::n_final), s, d_x, before.matrix<T>(Buf::d_n_final));
}

// B and W of all depths in one. `above`, `below`(S,C): workspace for the gradients of a block's output and input.
template <class T>
void Executor<T>::mtp_backward(Pass& pass, int chunk, int m, View<T, 2> above, View<T, 2> below) {
  for (int k = content(chunk).mtp_layers - 1; k >= 0; --k) {
    const int l = content(chunk).layers + k;
    const MtpLayer layer = use_mtp(pass, chunk, l, true);
    BufferSet s = slots_.block(chunk, m, l);
    head_backward_input<T>(context_, head_tensors(View<const T, 2>(), layer.module),
                           head_tensors(View<acc_t<T>, 2>(), layer.module_g), s, above);
    block_backward<T>(context_, layer_of(chunk, l), layer.w, layer.g, s, above, below);
    Frame frame(context_.arena);
    s.add(rebuilt_of_mtp(context_.buffers), context_.arena, Category::workspace);
    mtp_input_rebuild<T>(context_, layer.module, before_mtp(chunk, m, k).template matrix<T>(Buf::n_final), s);
    mtp_input_gradient(chunk, m, k, layer, s, below);
    mtp_input_backward_weight<T>(context_, layer.module_g, s, below);
    drop_layer(pass, chunk, l);
    experts_done(chunk, l);
    sync_->done(context_.stream, units(chunk).blocks[static_cast<std::size_t>(l)]);
  }
  if (content(chunk).mtp_layers > 0) sync_->done(context_.stream, units(chunk).shared_table);
}

template <class T>
void Executor<T>::mtp_backward_input(Pass& pass, int chunk, int m) {
  for (int k = content(chunk).mtp_layers - 1; k >= 0; --k) {
    const int l = content(chunk).layers + k;
    const MtpLayer layer = use_mtp(pass, chunk, l, false);
    const BufferSet s = slots_.block_apart(chunk, m, l);
    const View<T, 2> d_out = slots_.layer_gradient<T>(chunk, m, l), d_x = s.matrix<T>(Buf::d_mtp_block);
    head_backward_input<T>(context_, head_tensors(View<const T, 2>(), layer.module),
                           head_tensors(View<acc_t<T>, 2>(), layer.module_g), s, d_out);
    block_rebuild<T>(context_, layer_of(chunk, l), layer.w, s);
    block_backward_input<T>(context_, layer_of(chunk, l), layer.w, layer.g, s, d_out, d_x);
    mtp_input_rebuild<T>(context_, layer.module, before_mtp(chunk, m, k).template matrix<T>(Buf::n_final), s);
    mtp_input_gradient(chunk, m, k, layer, s, d_x);
    drop_layer(pass, chunk, l);
    experts_done(chunk, l);
  }
  if (content(chunk).mtp_layers > 0) sync_->done(context_.stream, units(chunk).shared_table);
}

template <class T>
void Executor<T>::mtp_backward_weight(int chunk, int m) {
  for (int k = content(chunk).mtp_layers - 1; k >= 0; --k) {
    const int l = content(chunk).layers + k;
    const std::size_t unit = units(chunk).blocks[static_cast<std::size_t>(l)];
    const BufferSet s = slots_.block_apart(chunk, m, l);
    block_backward_weight<T>(context_, layer_of(chunk, l), layer_gradients(chunk, l, true, false), s,
                             slots_.layer_gradient<T>(chunk, m, l));
    const auto g =
        mtp_tensors(context_.spec(), local(unit), sync_->matrices(context_.stream, unit), sync_->vectors(unit));
    mtp_input_backward_weight<T>(context_, g, s, s.matrix<T>(Buf::d_mtp_block));
    sync_->done(context_.stream, unit);
  }
}

#define FORGE_INSTANTIATE(T)                                                                     \
  template void Executor<T>::load_shifted(int, int, BatchSource&, int);                          \
  template void Executor<T>::head_of_states(int, int, View<const T, 2>, HeadTensors<acc_t<T>>*); \
  template void Executor<T>::hand_on_states(int, int, bool);                                     \
  template void Executor<T>::take_state_gradients(int, int);                                     \
  template void Executor<T>::hand_back_state_gradients(int, int);                                \
  template void Executor<T>::mtp_forward(Pass&, int, int);                                       \
  template void Executor<T>::mtp_backward(Pass&, int, int, View<T, 2>, View<T, 2>);              \
  template void Executor<T>::mtp_backward_input(Pass&, int, int);                                \
  template void Executor<T>::mtp_backward_weight(int, int);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge
