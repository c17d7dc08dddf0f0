#pragma once

#include "core/token_choice.hpp"
#include "model/buffers.hpp"

namespace forge {

// What a stage of a model has of a generation or of scores: its blocks, and whether it has the head.
struct KeptShare {
  std::int64_t blocks = 0;
  bool head = false;
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
  View<T, 2> keys, values;           // (blocks b n, K D), (blocks b n, K Dv): block after block
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
    l.add(keys, "keys of texts", share.blocks * texts * n, l.spec.kv_columns());
    l.add(values, "values of texts", share.blocks * texts * n, l.spec.v_columns());
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
