#pragma once

#include <vector>

#include "device/pinned.hpp"
#include "kernels/rows/choose_token.hpp"
#include "nn/block.hpp"
#include "nn/embedding.hpp"
#include "nn/generation.plan.hpp"
#include "nn/head.hpp"
#include "nn/host_counts.hpp"
#include "nn/parameter_views.hpp"
#include "nn/run.plan.hpp"

namespace forge {

// What a decoder keeps; R = its capacity.
template <class T>
struct DecoderBuffers {
  View<T, 2> keys, values;  // (layers R, K D), (layers R, K Dv): of those with attention
  TextStates<T> delta;
  View<std::int32_t, 1> positions, documents;  // (R)
  View<acc_t<T>, 2> logits;                    // (1, V)
  ChoiceWorkspace<acc_t<T>> choice;
  View<std::int32_t, 1> chosen;  // (1)
  NormStatistics<T> statistics;  // (1)
  View<T, 2> normed;             // (1, C)

  void list(BufferLister& l) {
    const KeptShare kept = kept_of(l.spec);
    l.add(keys, "keys of all layers", kept.attention * l.R, l.spec.kv_columns());
    l.add(values, "values of all layers", kept.attention * l.R, l.spec.v_columns());
    delta.list(l, kept.linear);
    l.add(positions, "positions of keys", l.R, 1);
    l.add(documents, "documents of keys", l.R, 1);
    l.add(logits, "logits", 1, l.spec.V());
    l.add(choice.largest, "largest logits", choice_chunks(l.spec.V()), 1);
    l.add(choice.weights, "weights of tokens", l.spec.V(), 1);
    l.add(choice.tokens, "bins of tokens", 2, l.spec.V());
    l.add(choice.bins, "sums of bins", 2, choice_bins);
    l.add(choice.found, "bin of a sum", 2, 1);
    l.add(chosen, "chosen token", 1, 1);
    l.add(statistics.mean, "norm mean", 1, 1);
    l.add(statistics.rstd, "norm rstd", 1, 1);
    l.add(normed, "norm output", 1, l.spec.C());
  }
  static KeptShare kept_of(const ModelSpec& s) {
    KeptShare kept;
    for (std::int64_t layer = 0; layer < s.L(); ++layer) kept.add_block(s, layer);
    return kept;
  }
};

// The forward pass of one sequence, a piece at a time, with a cache of keys and values: for generation. Owns its
// memory.
template <class T>
class Decoder {
 public:
  // The whole model (whole_units) and the weights of its units, in order; `capacity`: tokens of prompt and continuation
  // together. `router_biases`: (layers, E) of all layers, empty where the model has none. No expert's capacity acts:
  // what it drops depends on the whole sequence. `rounding`: products of blocks as its recipe rounds them, whose scales
  // may not be those of whole sequences. `piece`: rows of a pass at most, whose buffers it bounds.
  Decoder(Stream& stream, const ModelSpec& spec, const Precision& precision, const std::vector<LocalUnit>& units,
          const std::vector<const T*>& weights, std::int64_t capacity, const std::vector<double>& router_biases = {},
          const RoundingOptions& rounding = {}, std::int64_t piece = 2048);

  // Appends tokens, at most `capacity` in all.
  void append(const std::vector<std::int32_t>& tokens);
  // The logits (V) that follow the last of them.
  std::vector<double> logits() const;
  // A token by these logits, where they are (kernels/rows/choose_token.hpp).
  std::int32_t choose(const TokenChoice& how);
  std::int64_t length() const { return cache_.length; }
  std::int64_t capacity() const { return capacity_; }

 private:
  BufferContext piece_context(std::int64_t rows) const;
  static std::size_t arena_bytes(const BufferContext& run, const BufferContext& largest);
  static RoundingSizes rounded_sizes(const BufferContext& largest);
  void append_piece(std::int64_t rows);

  Stream& stream_;
  ModelSpec spec_;
  Precision precision_;
  RoundingOptions rounding_;
  std::int64_t capacity_, piece_;
  BufferContext run_;
  Arena arena_;
  Buffer workspace_;
  Gemm gemm_;
  RunBuffers<T> run_buffers_;
  KvCache<T> cache_;
  DecoderBuffers<T> buffers_;
  RoundingBuffers<T> rounded_;
  HostCounts counts_;
  PinnedVector<std::int32_t> tokens_, chosen_;  // (capacity), (1)
  EmbeddingParameters<const T> embedding_;
  std::vector<BlockParameters<const T>> blocks_;
  HeadParameters<const T> head_;
};

}  // namespace forge
