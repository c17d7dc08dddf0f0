#pragma once

#include "nn/attend.plan.hpp"

namespace forge {

// The pure half of nn/attention_layer.hpp.

// A tensor of those that make q, k and v, as the family's checkpoints have them.
struct QkvTensor {
  std::string_view name, hf;
  std::int64_t rows;
  Splits split;
};
ShortList<QkvTensor, 3> qkv_tensors(const ParameterLister& lister);

template <class P>
struct AttentionParameters : AttendParameters<P> {
  // ((H + 2K) D, C); with gates of the output (2H + 2K) D rows: each query head's, then its gate's
  View<P, 2> qkv;
  View<P, 1> qkv_bias;        // likewise
  View<P, 1> q_norm, k_norm;  // (D), or (H D) and (K D) of all heads together
  View<P, 1> sinks;           // (H)
  LowRank<P> qkv_adapter;

  void list(ParameterLister& l) {
    const ModelSpec& s = l.spec;
    this->list_norm(l);
    l.start(qkv, {{s.projected_columns(), s.C()}});
    for (const QkvTensor& t : qkv_tensors(l))
      l.tensor({{"attention.", t.name},
                {t.hf, "weight"},
                {t.rows, s.C()},
                t.split,
                Initial::normal,
                l.matrix_std(),
                l.gpt2()});
    if (s.options.qkv_bias) {
      l.start(qkv_bias, {{s.projected_columns()}});
      for (const QkvTensor& t : qkv_tensors(l))
        l.tensor({{"attention.", t.name, "_bias"}, {t.hf, "bias"}, {t.rows}, t.split});
    }
    if (s.options.qk_norm) {
      const bool whole = s.options.qk_norm_whole;
      const Splits heads = split_rows(s.D()), copied = {{0, s.D(), true}};
      const auto norm = [&](View<P, 1>& w, std::string_view name, std::string_view hf, std::int64_t columns,
                            const Splits& split) {
        l.add(w, {{name},
                  {hf},
                  {whole ? columns : s.D()},
                  whole ? split : Splits{},
                  Initial::ones,
                  0,
                  false,
                  -1,
                  l.norm_offset()});
      };
      norm(q_norm, "attention.q_norm", "self_attn.q_norm.weight", s.q_columns(), heads);
      norm(k_norm, "attention.k_norm", "self_attn.k_norm.weight", s.kv_columns(), copied);
    }
    if (s.options.attention_sinks)
      l.add(sinks, {{"attention.sinks"}, {"self_attn.sinks"}, {s.H()}, split_rows(), Initial::normal, l.matrix_std()});
    this->list_output(l);
  }
};

template <class T>
struct AttentionBuffers : AttendBuffers<T> {
  View<T, 2> qkv;             // (R, (H + 2K) D)
  View<T, 2> qk;              // (R, (H + K) D)  normalised q and k (QK-norm only)
  View<acc_t<T>, 2> qk_rstd;  // (R, H + K), or (R, 2) of all heads together
  View<T, 2> d_qkv;           // (R, (H + 2K) D)
  View<T, 2> gate;            // (R, H D), where the output is gated
  View<T, 2> d_projected;     // (R, (2H + 2K) D), likewise
  LowRows<T> qkv_low;
  View<T, 2> all_n1;  // (R, C) n1 of all tp ranks, where recomputation keeps it

  void list(BufferLister& l) {
    const ModelSpec& s = l.spec;
    this->list_norm(l);
    this->list_n1(l);
    l.save(qkv, "q, k, v", l.R, s.qkv_columns(), l.B);
    qkv_low.list(l, BlockProduct::qkv);
    if (s.options.qk_norm) {
      l.save(qk, "normalised q, k", l.R, s.q_columns() + s.kv_columns(), l.B);
      l.save(qk_rstd, "QK-norm rstd", l.R, s.options.qk_norm_whole ? 2 : s.H() + s.K(), l.B);
    }
    if (s.output_gate()) l.save(gate, "gates of attention's output", l.R, s.q_columns(), l.B);
    this->list_outputs(l);
    if (s.output_gate()) l.save(this->gated_o, "gated attention output", l.R, s.o_columns(), l.W);
  }
  void list_gradients(BufferLister& l) {
    this->list_attend_gradients(l);
    l.add(d_qkv, "gradient of q, k, v", l.R, l.spec.qkv_columns(), l.W);
    if (l.spec.output_gate()) l.add(d_projected, "gradient of q, gates, k, v", l.R, l.spec.projected_columns(), l.W);
    qkv_low.list_gradients(l, BlockProduct::qkv);
  }
  void list_gathered(BufferLister& l) { l.add(all_n1, "norm 1 output of all tp ranks", l.R, l.spec.C(), l.W); }
};

// Workspace of B.
template <class T>
struct AttentionScratch : AttendScratch<T> {
  View<acc_t<T>, 2> qk_slopes;  // (R, 2) of QK-norm over all heads together
  View<T, 2> d_gate;            // (R, H D)

  void list(BufferLister& l) {
    const ModelSpec& s = l.spec;
    const bool whole = s.options.qk_norm_whole;
    const std::int64_t normed = !s.options.qk_norm ? 0 : whole ? s.q_columns() + s.kv_columns() : s.D();
    this->list_attend(l);
    this->list_d_n1(l);
    if (s.output_gate()) l.add(d_gate, "gradient of the gates", l.R, s.q_columns());
    if (whole) l.add(qk_slopes, "slopes of QK-norm", l.R, 2);
    this->rows.list_norm(l, std::max(s.C(), s.D()), normed);
    this->rows.list_rows(l);
  }
};

// Workspace of the projection where the output is gated.
template <class T>
struct GatedProjection {
  View<T, 2> projected;  // (R, (2H + 2K) D)

  void list(BufferLister& l) {
    if (l.spec.output_gate()) l.add(projected, "q, gates, k, v", l.R, l.spec.projected_columns());
  }
};

// How tp splits the product that makes q, k and v.
MatrixSplit qkv_split(const BufferContext& c);

// Gradients of key and value heads that tp neighbours share, before products round them: elements of one rank;
// 0: none are shared.
std::int64_t copied_gradients(const BufferContext& c);

void list_attention(Segments& list, std::int64_t layer, Pass pass);

}  // namespace forge
