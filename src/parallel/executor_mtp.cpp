#include "model/mtp_buffers.hpp"
#include "nn/mtp.hpp"
#include "parallel/executor.hpp"
#include "parallel/executor_pass.hpp"

// Multi-token prediction, on the stage with the head: depth k (from 0) is layer `layers + k` of the chunk.

namespace forge {

// A depth's part in a pass: its parameters and gradients beside those of its block.
template <class T>
struct Executor<T>::MtpLayer {
  BlockTensors<const T> w;
  MtpTensors<const T> module;
  BlockTensors<acc_t<T>> g;
  MtpTensors<acc_t<T>> module_g;
};

// The buffers of the head that depth k goes on from: the model's, or that of the depth before.
template <class T>
BufferSet Executor<T>::before_mtp(int chunk, int m, int k) const {
  return k == 0 ? slots_.head(chunk, m) : slots_.block(chunk, m, content(chunk).layers + k - 1);
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
    const HeadTensors<const T> head = head_tensors(table_tensor(spec, local(u.output), pass.use(u.output)), module);
    HeadTensors<acc_t<T>> g;
    g.output = table_tensor(spec, local(u.output), sync_->matrices(context_.stream, u.output));
    const auto sums = [&](std::int64_t i) { return View<double, 1>(step_.mtp.sums.row(k) + i, {{1}}); };
    head_forward<T>(context_, head, &g, s, vocabulary_, {step_.mtp.per_label[static_cast<std::size_t>(k)], 0}, sums(0),
                    sums(1));
    pass.release(u.output);
    drop_layer(pass, chunk, l);
  }
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

#define FORGE_INSTANTIATE(T)                                                        \
  template void Executor<T>::mtp_forward(Pass&, int, int);                          \
  template void Executor<T>::mtp_backward(Pass&, int, int, View<T, 2>, View<T, 2>); \
  template void Executor<T>::mtp_backward_input(Pass&, int, int);                   \
  template void Executor<T>::mtp_backward_weight(int, int);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge
