#include "nn/delta_layer.hpp"

namespace forge {

namespace {

// Of a layer's taps, or their gradients, those of a part of its channels.
template <class P>
View<P, 1> taps_of(const View<P, 1>& conv, const ConvPart& part, std::int64_t taps) {
  if (conv.empty()) return conv;
  return conv.slice(part.channel * taps, (part.channel + part.count) * taps);
}

}  // namespace

template <class T>
typename DeltaLayer<T>::Parts DeltaLayer<T>::parts(View<T, 2> in) const {
  const ModelSpec& m = p.spec();
  const std::int64_t channels = m.linear_channels(), values = m.linear_values(), heads = m.options.linear_value_heads;
  return {columns_of(in, 0, channels), columns_of(in, channels, values), columns_of(in, channels + values, heads),
          columns_of(in, channels + values + heads, heads)};
}

// Of all rows and this cp rank's heads.
template <class T>
typename DeltaLayer<T>::Parts DeltaLayer<T>::rule_parts(View<T, 2> heads) const {
  const DeltaShape s = delta_shape(p.ctx.buffers);
  return {columns_of(heads, 0, s.channels()),
          {},
          columns_of(heads, s.channels(), s.value_heads),
          columns_of(heads, s.channels() + s.value_heads, s.value_heads)};
}

// q, k, v, b and a of these rows.
template <class T>
std::array<HeadColumns<T>, 5> DeltaLayer<T>::kinds(const Parts& rows) const {
  const ModelDeck& o = p.spec().options;
  const std::int64_t keys = o.linear_key_heads * o.linear_key_dim;
  return {{{columns_of(rows.qkv, 0, keys), o.linear_key_dim},
           {columns_of(rows.qkv, keys, keys), o.linear_key_dim},
           {columns_of(rows.qkv, 2 * keys, p.spec().linear_values()), o.linear_value_dim},
           {rows.b, 1},
           {rows.a, 1}}};
}

// Of the numbers of a tp rank's value heads, those of this cp rank's.
template <class T>
template <class A>
View<A, 1> DeltaLayer<T>::own_heads(const View<A, 1>& of_heads) const {
  if (of_heads.empty()) return of_heads;
  const std::int64_t count = delta_shape(p.ctx.buffers).value_heads, first = p.ctx.groups.cp_rank() * count;
  return of_heads.slice(first, first + count);
}

template <class T>
DeltaGates<T> DeltaLayer<T>::gates() const {
  const Parts in = inputs();
  return {in.b, in.a, own_heads(w.log_decay), own_heads(w.time_bias)};
}

// n → all projections
template <class T>
void DeltaLayer<T>::project_to(const RowOperand<T>& n, View<T, 2> in) const {
  const MatrixSplit first = split();
  const std::int64_t begin = first.rows.count(), rest = w.in.rows() - begin;
  block_linear_forward<T>(p.ctx, first, n, w.in.slice(0, begin), {}, columns_of(in, 0, begin));
  if (rest > 0) linear_forward<T>(p.ctx, n.values(), w.in.slice(begin, begin + rest), {}, columns_of(in, begin, rest));
  adapter().forward(n.values(), in);
}

// n → the projections; with several cp ranks their heads go where the rule is computed.
template <class T>
void DeltaLayer<T>::project(const RowOperand<T>& n) const {
  if (alone()) return project_to(n, b.in);
  Frame frame(p.ctx.arena);
  const auto s = workspace<DeltaProjections<T>>(p.ctx);
  project_to(n, s.in);
  const Parts in = parts(s.in);
  copy_rows<T>(p.ctx.stream, in.z, b.z);
  DeltaExchange<T>(p.ctx, s.heads).to_heads(kinds(in), b.heads);
}

// q, k, v, b, a → the rule's result of these rows
template <class T>
void DeltaLayer<T>::forward_rule() const {
  const Parts in = inputs();
  for (const ConvPart& part : conv_parts(p.ctx.buffers, p.ctx.groups.cp_rank()))
    delta_conv_forward<T>(
        p.ctx.stream, delta_shape(p.ctx.buffers), documents(), columns_of(in.qkv, part.first, part.count),
        taps_of(w.conv, part, p.spec().options.linear_conv_taps), columns_of(b.mixed, part.first, part.count));
  Frame frame(p.ctx.arena);
  const std::int64_t columns = delta_value_columns(p.ctx.buffers);
  const auto heads = workspace<DeltaHeads<T>>(p.ctx, columns);
  const View<T, 2> out = alone() ? b.rule : heads.a;
  {
    Frame of_rule(p.ctx.arena);
    const auto s = workspace<DeltaForward<T>>(p.ctx);
    DeltaRule<T>(p.ctx, documents(), b.mixed, gates()).forward(s, out);
  }
  if (!alone()) DeltaExchange<T>(p.ctx, heads).to_rows(out, values(b.rule));
}

// The same of a generation's next tokens, whose texts go on from what is kept of them.
template <class T>
void DeltaLayer<T>::forward_next() const {
  const KvCache<T>& cache = *p.ctx.cache;
  const auto l = to_size(p.layer);
  const DeltaShape shape = delta_shape(p.ctx.buffers);
  const DeltaRows rows{p.batch.positions, cache.places};
  const DeltaMemory<T> memory{cache.states[l], cache.tails[l]};
  delta_begin<T>(p.ctx.stream, shape, rows, memory);
  delta_conv_next<T>(p.ctx.stream, shape, rows, parts(b.in).qkv, w.conv, memory.tail, b.mixed);
  Frame frame(p.ctx.arena);
  const auto s = workspace<DeltaForward<T>>(p.ctx);
  DeltaRule<T>(p.ctx, rows, memory.state, b.mixed, gates()).forward(s, b.rule);
}

template <class T>
void DeltaLayer<T>::forward(View<T, 2> branch, const RowScratch<T>& rows) const {
  project(gather_operand<T>(p.ctx, norm1_of(p, w, b, split(), b.n1), b.all_n1.empty() ? rows.all_rows : b.all_n1));
  p.ctx.cache ? forward_next() : forward_rule();
  gated_norm_forward<T>(p.ctx.stream, b.rule, z(), w.norm, p.spec().options.norm_epsilon, b.o);
  attention_out<T>(p, w, b, branch, rows, [&](View<T, 2> partial) { out_adapter().forward(b.o, partial); });
}

template <class T>
void DeltaLayer<T>::recompute() const {
  if (p.spec().norms_before() && p.ctx.buffers.recompute.has(Recompute::norms))
    norm_forward<T>(p.ctx, p.x, w.norm1.weight, w.norm1.bias, b.norm1, b.n1);
}

// d_o → the gradient of the rule's result, in its place, and that of z
template <class T>
void DeltaLayer<T>::backward_norm(const DeltaScratch<T>& s) const {
  const std::int64_t Dv = p.spec().options.linear_value_dim;
  gated_norm_backward<T>(p.ctx.stream, b.rule, z(), w.norm, p.spec().options.norm_epsilon, s.d_o, parts(b.d_in).z,
                         View<acc_t<T>, 2>(s.sums.data, {{s.sums.rows(), Dv}}), g.norm);
}

// d_rule → d, of q, k, v, b and a, and the gradients of vectors
template <class T>
void DeltaLayer<T>::backward_rule(const DeltaScratch<T>& s, View<const T, 2> d_rule, const Parts& d) const {
  Stream& stream = p.ctx.stream;
  const DeltaShape shape = delta_shape(p.ctx.buffers);
  const auto sums = [&](std::int64_t columns) { return View<acc_t<T>, 2>(s.sums.data, {{s.sums.rows(), columns}}); };
  {
    Frame frame(p.ctx.arena);
    const auto work = workspace<DeltaBackward<T>>(p.ctx);
    DeltaRule<T>(p.ctx, documents(), b.mixed, gates()).backward(work, d_rule, s.d_mixed, d.b, d.a, s.decay);
  }
  const View<acc_t<T>, 2> heads = sums(shape.value_heads);
  if (!g.log_decay.empty()) column_sum<acc_t<T>>(stream, s.decay, heads, own_heads(g.log_decay));
  if (!g.time_bias.empty()) column_sum<T>(stream, d.a, heads, own_heads(g.time_bias));
  for (const ConvPart& part : conv_parts(p.ctx.buffers, p.ctx.groups.cp_rank())) {
    const auto of = [&](const View<T, 2>& x) { return columns_of(x, part.first, part.count); };
    const View<const T, 1> taps = taps_of(w.conv, part, p.spec().options.linear_conv_taps);
    delta_conv_backward<T>(stream, shape, documents(), of(inputs().qkv), taps, of(s.d_mixed), of(d.qkv),
                           sums(taps.rows()), taps_of(g.conv, part, p.spec().options.linear_conv_taps));
  }
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
  out_adapter().backward_input(d_branch, s.d_o);
  backward_norm(s);
  if (alone()) {
    backward_rule(s, s.d_o, parts(b.d_in));
  } else {
    const DeltaExchange<T> exchange(p.ctx, s.heads);
    const View<T, 2> d_rule(s.heads.a.data, {{s.heads.a.rows(), delta_value_columns(p.ctx.buffers)}});
    exchange.to_heads(values(s.d_o), d_rule);
    backward_rule(s, d_rule, rule_parts(s.heads.b));
    exchange.to_rows(s.heads.b, kinds(parts(b.d_in)));
  }
  const View<T, 2> partial = partial_rows(p.ctx, s.rows, s.d_n1);
  const MatrixSplit first = split();
  const std::int64_t begin = first.rows.count(), rest = w.in.rows() - begin;
  block_linear_backward_input<T>(p.ctx, first, columns_of(b.d_in, 0, begin), w.in.slice(0, begin), partial);
  if (rest > 0)
    linear_backward_input<T>(p.ctx, columns_of(b.d_in, begin, rest), w.in.slice(begin, begin + rest), partial, true);
  adapter().backward_input(b.d_in, partial);
  if (weights)
    behind.reduce_beside(partial, s.d_n1, [&] { add_weights(n, *weights); });
  else
    reduce_rows(p.ctx, partial, s.d_n1);
  norm1_backward<T>(p, w, g, b, s.d_n1, dx, s.rows);
}

template <class T>
void DeltaLayer<T>::add_weights(View<const T, 2> n, const RowScratch<T>& rows) const {
  attention_out_backward_weight<T>(p, g, b, attention_out_gradient<T>(b), rows);
  out_adapter().backward_weight(attention_out_gradient<T>(b), b.o);
  if (!g.in.empty()) {
    const MatrixSplit first = split();
    const std::int64_t begin = first.rows.count(), rest = g.in.rows() - begin;
    block_linear_backward_weight<T>(p.ctx, first, columns_of(b.d_in, 0, begin), n, g.in.slice(0, begin));
    if (rest > 0) linear_backward_weight<T>(p.ctx, columns_of(b.d_in, begin, rest), n, g.in.slice(begin, begin + rest));
  }
  adapter().backward_weight(b.d_in, n);
}

template <class T>
void DeltaLayer<T>::backward_weight(const RowScratch<T>& rows) const {
  add_weights(gather_rows<T>(p.ctx, attention_input(p, b), rows), rows);
}

FORGE_INSTANTIATE_CLASS(DeltaLayer);

}  // namespace forge
