#pragma once

#include "nn/attention_layer.plan.hpp"
#include "nn/context_attention.plan.hpp"
#include "nn/latent_attention.plan.hpp"
#include "nn/moe.plan.hpp"

namespace forge {

// The pure half of nn/block.hpp.

// All parameters of a block but its experts: of its attention, of its feed-forward part, of multi-token prediction.
Unit block_unit(const ModelSpec& spec, std::int64_t layer);

// A block has one kind of attention, and a dense feed-forward part or experts.
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

  // What forward makes for backward, beside the block's input.
  void list(BufferLister& l, std::int64_t layer);
  // What B leaves for W.
  void list_gradients(BufferLister& l, std::int64_t layer);
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

  void list(BufferLister& l, std::int64_t layer, BlockBuffers<T>& block);
};
// Workspace of B of the feed-forward part.
template <class T>
struct FeedForwardBackward {
  RowScratch<T> rows;
  View<T, 2> d_n2;   // (S, C)
  View<T, 2> d_act;  // (R, F)
  MoeBackward<T> moe;

  void list(BufferLister& l, std::int64_t layer);
};
// Workspace of W.
template <class T>
struct BlockWeight {
  RowScratch<T> rows;
  AllLatents<T> latents;
  JitterScratch<T> jittered;

  void list(BufferLister& l, std::int64_t layer);
};

// The most that a pass takes of the workspace at any time; `recompute`: to recompute what the policy dropped.
std::size_t block_scratch(const BufferContext& c, std::int64_t layer, Pass pass, bool recompute);
void add_block_sends(Sends& sends, std::int64_t layer, Pass pass, bool recompute);

}  // namespace forge
