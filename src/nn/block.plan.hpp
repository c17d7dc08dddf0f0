#pragma once

#include "nn/attention_layer.plan.hpp"
#include "nn/context_attention.plan.hpp"
#include "nn/delta_layer.plan.hpp"
#include "nn/latent_attention.plan.hpp"
#include "nn/moe.plan.hpp"
#include "nn/mtp.plan.hpp"

namespace forge {

// The pure half of nn/block.hpp.

// A block has one kind of attention, or gated DeltaNet, and a dense feed-forward part or experts: f(the member of m
// that it has).
template <class M, class F>
decltype(auto) of_attention(const ModelSpec& s, std::int64_t layer, M&& m, F f) {
  return s.linear(layer) ? f(m.delta) : s.mla() ? f(m.latent) : f(m.attention);
}
template <class M, class F, class G>
decltype(auto) of_feed_forward(const ModelSpec& s, std::int64_t layer, M&& m, F dense, G experts) {
  return s.is_moe(layer) ? experts(m.moe) : dense(m.mlp);
}

// All parameters of a block, and those of multi-token prediction; experts are a unit of their own.
template <class P>
struct BlockParameters {
  AttentionParameters<P> attention;
  LatentParameters<P> latent;
  DeltaParameters<P> delta;
  NormParameters<P> norm2, norm2_behind;  // of the feed-forward layer's input, of its result
  MlpParameters<P> mlp;
  MoeParameters<P> moe;
  MtpParameters<P> mtp;

  void list(ParameterLister& l) {
    const ModelSpec& s = l.spec;
    if (l.kind == UnitKind::experts) return moe.experts.list(l);
    if (l.kind == UnitKind::adapter) return list_adapters(l);
    if (l.kind == UnitKind::expert_adapter) return moe.experts.list_adapters(l);
    const auto list = [&](auto& half) { half.list(l); };
    of_attention(s, l.layer, *this, list);
    if (s.norms_before())
      norm2.list(l, "norm2",
                 s.norms_behind() ? "pre_feedforward_layernorm." : l.hf("post_attention_layernorm.", "ln_2."));
    if (s.norms_behind()) norm2_behind.list(l, "norm2_behind", "post_feedforward_layernorm.");
    of_feed_forward(s, l.layer, *this, list, list);
    if (l.layer >= s.L()) mtp.list(l);
  }

 private:
  // A unit of their own, too.
  void list_adapters(ParameterLister& l) {
    const bool linear = l.spec.linear(l.layer);
    if (l.spec.mla()) {
      latent.q_down_adapter.list(l, BlockProduct::q_down);
      latent.kv_down_adapter.list(l, BlockProduct::kv_down);
      latent.q_up_adapter.list(l, BlockProduct::q_up);
      latent.kv_up_adapter.list(l, BlockProduct::kv_up);
    } else if (linear) {
      delta.in_adapter.list(l, delta_in);
    } else {
      attention.qkv_adapter.list(l, BlockProduct::qkv);
    }
    of_attention(l.spec, l.layer, *this,
                 [&](auto& half) { half.out_adapter.list(l, linear ? delta_out : BlockProduct::attention_out); });
    const bool shared = l.spec.is_moe(l.layer);
    MlpParameters<P>& feed_forward = shared ? moe.shared : mlp;
    feed_forward.up_adapter.list(l, {BlockProduct::gate_up, shared});
    feed_forward.down_adapter.list(l, {BlockProduct::down, shared});
  }
};

template <class T>
struct BlockBuffers {
  AttentionBuffers<T> attention;
  LatentBuffers<T> latent;
  DeltaBuffers<T> delta;
  NormStatistics<T> norm2, norm2_behind;
  View<T, 2> n2;      // (S, C) norm 2's output, where norms stand before
  View<T, 2> branch;  // (S, C) the feed-forward layer's output, where norms stand behind
  MlpBuffers<T> mlp;
  MoeBuffers<T> moe;
  // Gradient of the feed-forward part's output projection, all rows: where dropout, tensor parallelism, a norm or a
  // gate makes it another thing than that of the block's output.
  View<T, 2> d_down_out;  // (R, C)
  SavedAmaxes amaxes;     // of rounded products

  // What forward makes for backward, beside the block's input.
  void list(BufferLister& l, std::int64_t layer) {
    amaxes.list(l, layer);
    const auto list = [&](auto& half) { half.list(l); };
    of_attention(l.spec, layer, *this, list);
    if (l.spec.norms_before()) {
      norm2.list(l, "norm 2 mean", "norm 2 rstd");
      l.recompute(n2, Recompute::norms, "norm 2 output", l.S, l.spec.C(), l.W);
    }
    if (l.spec.norms_behind()) {
      norm2_behind.list(l, "norm 2 behind mean", "norm 2 behind rstd");
      l.save(branch, "feed-forward before its norm", l.S, l.spec.C(), l.B);
    }
    of_feed_forward(l.spec, layer, *this, list, list);
  }
  // What B leaves for W.
  void list_gradients(BufferLister& l, std::int64_t layer) {
    const ModelSpec& s = l.spec;
    const bool has_mlp = !s.is_moe(layer) || s.Fs() > 0, gated = s.is_moe(layer) && s.options.shared_expert_gate;
    const auto list = [&](auto& half) { half.list_gradients(l); };
    of_attention(s, layer, *this, list);
    of_feed_forward(s, layer, *this, list, list);
    if (has_mlp && (output_rows_differ(l.c) || gated))
      l.add(d_down_out, "gradient of feed-forward output", l.R, s.C(), l.W);
  }
  // What recomputation leaves for W where B and W are one pass.
  void list_gathered(BufferLister& l, std::int64_t layer) {
    if (!keeps_gathered(l.c)) return;
    const auto list = [&](auto& half) { half.list_gathered(l); };
    of_attention(l.spec, layer, *this, list);
    of_feed_forward(l.spec, layer, *this, list, list);
  }
  const AttendBuffers<T>& attend(const ModelSpec& s, std::int64_t layer) const {
    return of_attention(s, layer, *this, [](const AttendBuffers<T>& half) -> const AttendBuffers<T>& { return half; });
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
// Workspace of W, alone or with B.
template <class T>
struct BlockWeight {
  RowScratch<T> rows;
  JitterScratch<T> jittered;

  void list(BufferLister& l, std::int64_t layer, Pass pass) {
    const ModelSpec& s = l.spec;
    const ModelDeck& o = s.options;
    // The widest of the biases' sums.
    const std::int64_t columns =
        std::max({o.qkv_bias ? s.projected_columns() : 0, o.attention_out_bias || o.mlp_bias ? s.C() : 0,
                  o.mlp_bias ? s.up_columns() : 0, o.router_logit_bias && s.is_moe(layer) ? s.E() : 0});
    if (columns > 0) rows.list_partial(l, columns);
    if (pass == Pass::backward_weight || !keeps_gathered(l.c)) rows.list_rows(l);
    if (s.is_moe(layer)) jittered.list(l);
  }
};

// The most that a pass takes of the workspace at any time; `recompute`: to recompute what the policy dropped.
std::size_t block_scratch(const BufferContext& c, std::int64_t layer, Pass pass, bool recompute);
void list_block(Segments& list, std::int64_t layer, Pass pass, bool recompute);

}  // namespace forge
