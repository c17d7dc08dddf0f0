#include "nn/delta_layer.hpp"

namespace forge {

template <class T>
typename DeltaLayer<T>::Parts DeltaLayer<T>::parts(View<T, 2> in) const {
  const ModelSpec& m = p.spec();
  const std::int64_t channels = m.linear_channels(), values = m.linear_values(), heads = m.options.linear_value_heads;
  return {columns_of(in, 0, channels), columns_of(in, channels, values), columns_of(in, channels + values, heads),
          columns_of(in, channels + values + heads, heads)};
}

template <class T>
DeltaGates<T> DeltaLayer<T>::gates() const {
  const Parts in = parts(b.in);
  return {in.b, in.a, w.log_decay, w.time_bias};
}

template <class T>
void DeltaLayer<T>::forward(View<T, 2> branch, const RowScratch<T>& rows) const {
  require(!p.ctx.cache, "generation has no gated DeltaNet");
  const MatrixSplit split = delta_in_split(p.spec());
  const RowOperand<T> n =
      gather_operand<T>(p.ctx, norm1_of(p, w, b, split, b.n1), b.all_n1.empty() ? rows.all_rows : b.all_n1);
  block_linear_forward<T>(p.ctx, split, n, w.in, {}, b.in);
  const Parts in = parts(b.in);
  delta_conv_forward<T>(p.ctx.stream, delta_shape(p.ctx.buffers), p.batch.documents, in.qkv, w.conv, b.mixed);
  {
    Frame frame(p.ctx.arena);
    const auto s = workspace<DeltaForward<T>>(p.ctx);
    DeltaRule<T>(p.ctx, p.batch.documents, b.mixed, gates()).forward(s, b.rule);
  }
  gated_norm_forward<T>(p.ctx.stream, b.rule, in.z, w.norm, p.spec().options.norm_epsilon, b.o);
  attention_out<T>(p, w, b, branch, rows);
}

template <class T>
void DeltaLayer<T>::recompute() const {
  if (p.spec().norms_before()) norm_forward<T>(p.ctx, p.x, w.norm1.weight, w.norm1.bias, b.norm1, b.n1);
}

// d_o → d_in, and the gradients of vectors
template <class T>
void DeltaLayer<T>::backward_rule(const DeltaScratch<T>& s) const {
  Stream& stream = p.ctx.stream;
  const Parts in = parts(b.in), d_in = parts(b.d_in);
  const auto sums = [&](std::int64_t columns) { return View<acc_t<T>, 2>(s.sums.data, {{s.sums.rows(), columns}}); };
  gated_norm_backward<T>(stream, b.rule, in.z, w.norm, p.spec().options.norm_epsilon, s.d_o, d_in.z,
                         sums(p.spec().options.linear_value_dim), g.norm);
  {
    Frame frame(p.ctx.arena);
    const auto work = workspace<DeltaBackward<T>>(p.ctx);
    DeltaRule<T>(p.ctx, p.batch.documents, b.mixed, gates()).backward(work, s.d_o, s.d_mixed, d_in.b, d_in.a, s.decay);
  }
  const View<acc_t<T>, 2> heads = sums(p.spec().options.linear_value_heads);
  if (!g.log_decay.empty()) column_sum<acc_t<T>>(stream, s.decay, heads, g.log_decay);
  if (!g.time_bias.empty()) column_sum<T>(stream, d_in.a, heads, g.time_bias);
  delta_conv_backward<T>(stream, delta_shape(p.ctx.buffers), p.batch.documents, in.qkv, w.conv, s.d_mixed, d_in.qkv,
                         sums(w.conv.rows()), g.conv);
}

template <class T>
void DeltaLayer<T>::backward(View<T, 2> dx, const RowScratch<T>* weights) const {
  Frame frame(p.ctx.arena);
  const auto s = workspace<DeltaScratch<T>>(p.ctx);
  const View<const T, 2> d_branch = attend_output_rows(p, w, g, b, s.rows);
  RowsBehind<T> behind(p.ctx);
  const View<const T, 2> n =
      weights ? behind.gather(attention_input(p, b), b.all_n1, weights->all_rows) : View<const T, 2>();
  block_linear_backward_input<T>(p.ctx, attention_out_split(p.spec(), p.layer), d_branch, w.out, s.d_o);
  backward_rule(s);
  const View<T, 2> partial = partial_rows(p.ctx, s.rows, s.d_n1);
  block_linear_backward_input<T>(p.ctx, delta_in_split(p.spec()), b.d_in, w.in, partial);
  if (weights) {
    behind.wait();
    behind.reduce(partial, s.d_n1);
    add_weights(n, *weights);
    behind.wait();
  } else {
    reduce_rows(p.ctx, partial, s.d_n1);
  }
  norm1_backward<T>(p, w, g, b, s.d_n1, dx, s.rows);
}

template <class T>
void DeltaLayer<T>::add_weights(View<const T, 2> n, const RowScratch<T>& rows) const {
  attention_out_backward_weight<T>(p, g, b, attention_out_gradient<T>(b), rows);
  block_linear_backward_weight<T>(p.ctx, delta_in_split(p.spec()), b.d_in, n, g.in);
}

template <class T>
void DeltaLayer<T>::backward_weight(const RowScratch<T>& rows) const {
  add_weights(gather_rows<T>(p.ctx, attention_input(p, b), rows), rows);
}

FORGE_INSTANTIATE_CLASS(DeltaLayer);

}  // namespace forge
