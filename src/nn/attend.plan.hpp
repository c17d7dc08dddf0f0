#pragma once

#include "nn/adapter.plan.hpp"
#include "nn/norm.plan.hpp"

namespace forge {

// The pure half of nn/attend.hpp: what the two kinds of attention layer share. Dv is D without latents.

template <class P>
struct AttendParameters {
  NormParameters<P> norm1, norm1_behind;  // of attention's input, of its result: those that the model has
  View<P, 2> out;                         // (C, H Dv)
  View<P, 1> out_bias;                    // (C)
  LowRank<P> out_adapter;

  void list_norm(ParameterLister& l) {
    if (l.spec.norms_before()) norm1.list(l, "norm1", l.hf("input_layernorm.", "ln_1."));
    if (l.spec.norms_behind()) norm1_behind.list(l, "norm1_behind", "post_attention_layernorm.");
  }
  void list_output(ParameterLister& l) {
    const ModelSpec& s = l.spec;
    const std::string_view hf = s.linear(l.layer) ? "linear_attn.out_proj." : l.hf("self_attn.o_proj.", "attn.c_proj.");
    const std::int64_t head = s.linear(l.layer) ? s.options.linear_value_dim : s.value_dim();
    l.add(out, {{"attention.out"},
                {hf, "weight"},
                {s.C(), s.mixed_columns(l.layer)},
                split_columns(head),
                Initial::normal,
                l.output_std(),
                l.gpt2()});
    if (s.options.attention_out_bias && !s.linear(l.layer))
      l.add(out_bias, {{"attention.out_bias"}, {hf, "bias"}, {s.C()}}, Section::output_biases);
  }
};

// Whether the gradient of a projection into the residual stream is not that of the stream.
inline bool output_rows_differ(const BufferContext& c) {
  return c.spec.options.dropout > 0 || c.tp > 1 || c.spec.norms_behind();
}

template <class T>
struct AttendBuffers {
  NormStatistics<T> norm1, norm1_behind;
  View<T, 2> n1;          // (S, C) normalised input, where norms stand before
  View<T, 2> o;           // (R, H Dv) attention's output
  View<acc_t<T>, 2> lse;  // (R, H)
  View<T, 2> gated_o;     // (R, H Dv) the projection's input, where gates stand before it
  View<T, 2> branch;      // (S, C) result of the output projection, where norms stand behind
  View<T, 2> h;           // (S, C) residual stream after attention
  LowRows<T> out_low;
  // Gradients. d_out of the output projection, all rows: where dropout, tensor parallelism or a norm makes it another
  // thing than d_h.
  View<T, 2> d_h;    // (S, C)
  View<T, 2> d_out;  // (R, C)

  const View<T, 2>& projected_o() const { return gated_o.empty() ? o : gated_o; }

  void list_norm(BufferLister& l) {
    if (l.spec.norms_before()) norm1.list(l, "norm 1 mean", "norm 1 rstd");
    if (l.spec.norms_behind()) norm1_behind.list(l, "norm 1 behind mean", "norm 1 behind rstd");
  }
  void list_n1(BufferLister& l) {
    if (l.spec.norms_before()) l.recompute(n1, Recompute::norms, "norm 1 output", l.S, l.spec.C(), l.W);
  }
  void list_outputs(BufferLister& l) {
    l.save(o, "attention output", l.R, l.spec.o_columns(), l.W);
    l.save(lse, "attention log-sum-exp", l.R, l.spec.H(), l.B);
    list_residual(l);
  }
  void list_residual(BufferLister& l, const AdaptedProduct& projection = BlockProduct::attention_out) {
    out_low.list(l, projection);
    if (l.spec.norms_behind()) l.save(branch, "attention before its norm", l.S, l.spec.C(), l.B);
    l.save(h, "residual after attention", l.S, l.spec.C(), l.spec.norms_before() ? l.B : l.W);
  }
  void list_attend_gradients(BufferLister& l, const AdaptedProduct& projection = BlockProduct::attention_out) {
    l.add(d_h, "gradient after attention", l.S, l.spec.C(), l.W);
    if (output_rows_differ(l.c)) l.add(d_out, "gradient of attention projection", l.R, l.spec.C(), l.W);
    out_low.list_gradients(l, projection);
  }
};

// Workspace of B.
template <class T>
struct AttendScratch {
  RowScratch<T> rows;
  View<T, 2> d_o;                           // (R, H Dv)
  View<acc_t<T>, 2> delta;                  // (R, H)
  View<acc_t<T>, 2> d_q_sums;               // (R, H D) where sums of d_q need a wider type, and one rank has all keys
  View<T, 2> d_n1;                          // (S, C)
  View<acc_t<T>, 2> sink_terms, sink_sums;  // (R, H) of the sinks' gradient, workspace of its sums

  void list_attend(BufferLister& l) {
    l.add(d_o, "gradient of attention output", l.R, l.spec.o_columns(), l.B);
    l.add(delta, "attention delta", l.R, l.spec.H(), l.B);
    if (rounds<T> && l.c.microbatch.cp == 1) l.add(d_q_sums, "sums of the gradient of q", l.R, l.spec.q_columns(), l.B);
    if (!l.spec.options.attention_sinks) return;
    l.add(sink_terms, "terms of the sinks' gradient", l.R, l.spec.H(), l.B);
    l.add(sink_sums, "sums of them", norm_partial_rows(l.c.microbatch.rows_of_all()), l.spec.H(), l.B);
  }
  void list_d_n1(BufferLister& l) { l.add(d_n1, "gradient of norm output", l.S, l.spec.C()); }
};

// How tp splits the output projection of a layer.
MatrixSplit attention_out_split(const ModelSpec& spec, std::int64_t layer);

// The part common to both kinds of attention: attention and the output projection in forward and B (in `backward` also
// the start of W's gather), and the output projection's W.
void list_attend(Segments& list, std::int64_t layer, Pass pass);

}  // namespace forge
