#pragma once

#include "core/token_choice.hpp"
#include "model/buffers.hpp"

namespace forge {

// What a stage of a model has of a generation or of scores: its blocks with attention and with gated DeltaNet, and
// whether it has the head.
struct KeptShare {
  std::int64_t attention = 0, linear = 0;
  bool head = false;

  void add_block(const ModelSpec& s, std::int64_t layer) { ++(s.linear(layer) ? linear : attention); }
};

// Memory of b texts in layers of gated DeltaNet (KvCache), layer after layer.
template <class T>
struct TextStates {
  View<acc_t<T>, 2> states;  // (layers b value heads Dk, Dv)
  View<T, 2> tails;          // (layers b (taps − 1), channels)

  void list(BufferLister& l, std::int64_t layers) {
    const ModelDeck& o = l.spec.options;
    const std::int64_t texts = layers * l.c.microbatch.sequences;
    if (layers == 0) return;
    l.add(states, "states of texts", texts * o.linear_value_heads * o.linear_key_dim, o.linear_value_dim);
    l.add(tails, "tails of texts", texts * (o.linear_conv_taps - 1), l.spec.linear_channels());
  }
  std::size_t bytes() const { return to_size(states.size()) * sizeof(acc_t<T>) + to_size(tails.size()) * sizeof(T); }
};

// What a rank keeps where an evaluation asks for its rows' scores (BufferContext::row_scores): of the microbatch at
// hand and of the one before.
struct ScoreBuffers {
  View<double, 2> log_likelihood;  // (2, R)
  View<std::int32_t, 2> beaten;    // (2, R)

  void list(BufferLister& l, const KeptShare& share) {
    if (!l.c.row_scores || !share.head) return;
    l.add(log_likelihood, "log-likelihoods of rows", 2, l.R);
    l.add(beaten, "whether labels are beaten", 2, l.R);
  }
};

// What a rank keeps where a run generates texts (BufferContext::cache_tokens = n), b at a time.
template <class T>
struct GenerationBuffers {
  View<T, 2> keys, values;  // (blocks b n, K D), (blocks b n, K Dv): of those with attention
  TextStates<T> delta;
  View<std::int32_t, 1> positions;   // (b n) of keys
  View<std::int32_t, 1> places;      // (R) KvCache::places
  View<std::int32_t, 1> rows;        // (b) the last row of each text in the pass
  View<acc_t<T>, 2> logits;          // (b, V) what follows them, of this tensor-parallel rank
  View<acc_t<T>, 2> all_logits;      // (tp b, V) of all of them
  View<acc_t<T>, 2> text_logits;     // (tp, V) of one text
  ChoiceWorkspace<acc_t<T>> choice;  // for the whole vocabulary
  View<std::int32_t, 1> chosen;      // (b)

  void list(BufferLister& l, const KeptShare& share) {
    const std::int64_t texts = l.c.microbatch.sequences, n = l.c.cache_tokens, all = l.c.tp * l.spec.V();
    if (n == 0) return;
    l.add(keys, "keys of texts", share.attention * texts * n, l.spec.kv_columns());
    l.add(values, "values of texts", share.attention * texts * n, l.spec.v_columns());
    delta.list(l, share.linear);
    l.add(positions, "positions of keys", texts * n, 1);
    l.add(places, "places of keys", l.R, 1);
    if (!share.head) return;
    l.add(rows, "last rows of texts", texts, 1);
    l.add(logits, "logits of texts", texts, l.spec.V());
    if (l.c.tp > 1) l.add(all_logits, "logits of all ranks", l.c.tp * texts, l.spec.V());
    if (l.c.tp > 1) l.add(text_logits, "logits of one text", l.c.tp, l.spec.V());
    l.add(choice.largest, "largest logits", choice_chunks(all), 1);
    l.add(choice.weights, "weights of tokens", all, 1);
    l.add(choice.tokens, "bins of tokens", 2, all);
    l.add(choice.bins, "sums of bins", 2, choice_bins);
    l.add(choice.found, "bin of a sum", 2, 1);
    l.add(chosen, "chosen tokens", texts, 1);
  }
};

}  // namespace forge
