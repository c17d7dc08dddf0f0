#pragma once

#include "model/kept_amaxes.hpp"
#include "nn/attention_layer.plan.hpp"
#include "nn/context_attention.plan.hpp"
#include "nn/latent_attention.plan.hpp"
#include "nn/moe.plan.hpp"
#include "nn/mtp.plan.hpp"

namespace forge {

// The pure half of nn/block.hpp.

// All parameters of a block, and those of multi-token prediction; experts are a unit of their own. A block has one kind
// of attention, and a dense feed-forward part or experts.
template <class P>
struct BlockParameters {
  AttentionParameters<P> attention;
  LatentParameters<P> latent;
  NormParameters<P> norm2;
  MlpParameters<P> mlp;
  MoeParameters<P> moe;
  MtpParameters<P> mtp;

  void list(ParameterLister& l) {
    const ModelSpec& s = l.spec;
    if (l.kind == UnitKind::experts) return moe.experts.list(l);
    s.mla() ? latent.list(l) : attention.list(l);
    norm2.list(l, "norm2", l.hf("post_attention_layernorm.", "ln_2."));
    s.is_moe(l.layer) ? moe.list(l) : mlp.list(l, s.F(), s.options.mlp_bias);
    if (l.layer >= s.L()) mtp.list(l);
  }
};

template <class T>
struct BlockBuffers {
  AttentionBuffers<T> attention;
  LatentBuffers<T> latent;
  NormStatistics<T> norm2;
  View<T, 2> n2;  // (S, C)
  MlpBuffers<T> mlp;
  MoeBuffers<T> moe;
  // Gradient of the feed-forward part's output projection, all rows: where dropout, tensor parallelism or a gate makes
  // it another thing than that of the block's output.
  View<T, 2> d_down_out;  // (R, C)
  KeptAmaxes amaxes;      // of products in FP8

  // What forward makes for backward, beside the block's input.
  void list(BufferLister& l, std::int64_t layer) {
    amaxes.list(l, layer);
    l.spec.mla() ? latent.list(l) : attention.list(l);
    norm2.list(l, "norm 2 mean", "norm 2 rstd");
    l.recompute(n2, "norm 2 output", l.S, l.spec.C(), l.W);
    l.spec.is_moe(layer) ? moe.list(l) : mlp.list(l, l.spec.F(), false);
  }
  // What B leaves for W.
  void list_gradients(BufferLister& l, std::int64_t layer) {
    const ModelSpec& s = l.spec;
    const bool has_mlp = !s.is_moe(layer) || s.Fs() > 0, gated = s.is_moe(layer) && s.options.shared_expert_gate;
    s.mla() ? latent.list_gradients(l) : attention.list_gradients(l);
    if (s.is_moe(layer)) moe.list_gradients(l);
    if (has_mlp && (output_rows_differ(l.c) || gated))
      l.add(d_down_out, "gradient of feed-forward output", l.R, s.C(), l.W);
  }
  const AttendBuffers<T>& attend(const ModelSpec& s) const {
    if (s.mla()) return latent;
    return attention;
  }
};

// Workspace of a forward pass, beside what is not saved.
template <class T>
struct BlockForward {
  RowScratch<T> rows;
  View<T, 2> branch;  // (S, C) output of attention or feed-forward before it joins the residual stream
  MoeForward<T> moe;

  void list(BufferLister& l, std::int64_t layer, BlockBuffers<T>& block) {
    l.add(branch, "branch output", l.S, l.spec.C());
    rows.list_rows(l);
    if (l.spec.is_moe(layer)) moe.list(l, block.moe);
  }
};
// Workspace of B of the feed-forward part.
template <class T>
struct FeedForwardBackward {
  RowScratch<T> rows;
  View<T, 2> d_n2;   // (S, C)
  View<T, 2> d_act;  // (R, F)
  MoeBackward<T> moe;

  void list(BufferLister& l, std::int64_t layer) {
    l.add(d_n2, "gradient of norm output", l.S, l.spec.C());
    rows.list_norm(l, l.spec.C());
    rows.list_rows(l);
    if (l.spec.is_moe(layer))
      moe.list(l);
    else
      l.add(d_act, "gradient of the activation", l.R, l.spec.F());
  }
};
// Workspace of W.
template <class T>
struct BlockWeight {
  RowScratch<T> rows;
  AllLatents<T> latents;
  JitterScratch<T> jittered;

  void list(BufferLister& l, std::int64_t layer) {
    const ModelSpec& s = l.spec;
    const ModelDeck& o = s.options;
    // The widest of the biases' sums.
    const std::int64_t columns =
        std::max({o.qkv_bias ? s.qkv_columns() : 0, o.attention_out_bias || o.mlp_bias ? s.C() : 0,
                  o.mlp_bias ? s.up_columns() : 0});
    if (columns > 0) rows.list_partial(l, columns);
    rows.list_rows(l);
    if (s.mla()) latents.list(l);
    if (s.is_moe(layer)) jittered.list(l);
  }
};

// The most that a pass takes of the workspace at any time; `recompute`: to recompute what the policy dropped.
std::size_t block_scratch(const BufferContext& c, std::int64_t layer, Pass pass, bool recompute);
void list_block(Segments& list, std::int64_t layer, Pass pass, bool recompute);

}  // namespace forge
