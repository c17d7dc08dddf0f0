#pragma once

#include <algorithm>
#include <vector>

#include "core/collectives.hpp"
#include "nn/router.plan.hpp"

namespace forge {

// Whether steps that report norms report shares of rounded numbers, too.
inline bool counts_rounding(const BufferContext& c) {
  return c.rounding.on && c.normed_units > 0;
}

// What all ranks sum at the end of a step: losses of sources, loss, z and squared norm; losses of multi-token
// prediction; routers' loads and losses; the largest attention logits; largest magnitudes of rounded tensors.
std::vector<Sent> scalar_sums(const BufferContext& c);
// And behind an update whose norms are reported.
std::vector<Sent> norm_sums(const BufferContext& c);

// How often products have their workspace: each pass of a pair has its own.
inline int scratch_tracks(const BufferContext& c, bool trains) {
  return trains ? c.tracks : 1;
}

// Positions that the rotary tables have.
inline std::int64_t rotary_rows(const BufferContext& c) {
  return std::max(c.microbatch.sequence_tokens, c.cache_tokens);
}

// What layers and the step have for the whole run, once per rank.
template <class T>
struct RunBuffers {
  View<double, 1> scalars;         // (leading_sums() + 5), then StepScalars of kernels.hpp
  View<double, 1> norm_partials;   // sum_partials
  View<acc_t<T>, 2> cosine, sine;  // (T, rotary entries of a head / 2), one table below the other
  RouterState<T> routers;
  View<double, 2> mtp_sums;  // (mtp_depth, 2) of a step: losses, z
  // Of all layers and heads of the model: the largest attention logits of a step; what they scale weights by
  // (optim/head_clip.hpp), (layers, 3 H).
  View<acc_t<T>, 2> peaks, head_factors;
  View<double, 2> unit_norms;       // (units of the model, 2) squares of weights, of their last update
  View<double, 2> rounding_counts;  // of a step's rounded numbers, where norms are reported
  AmaxHistory amax_history;         // with the delayed recipe
  View<std::int64_t, 1> checksum;   // of a step's gradients, where they are checked

  void list(BufferLister& l) {
    l.add(scalars, "step scalars", l.c.leading_sums() + 5, 1);
    l.add(norm_partials, "gradient norm sums", sum_partials, 1);
    if (l.spec.rope()) {
      const std::int64_t rows = l.spec.rotary_tables() * rotary_rows(l.c);
      l.add(cosine, "rotary cosines", rows, l.spec.rotary_dim() / 2);
      l.add(sine, "rotary sines", rows, l.spec.rotary_dim() / 2);
    }
    if (l.spec.E() > 0) routers.list(l);
    if (l.c.attention_peaks) {
      const std::int64_t layers = l.spec.L() + l.spec.options.mtp_depth, heads = l.spec.H() * l.c.tp;
      l.add(peaks, "largest attention logits", layers, heads);
      l.add(head_factors, "factors of heads", layers, 3 * heads);
    }
    if (l.c.normed_units > 0) l.add(unit_norms, "norms of units", l.c.normed_units, 2);
    if (counts_rounding(l.c)) l.add(rounding_counts, rounding_counts_name, rounding_count_rows, rounding_count_columns);
    amax_history.list(l);
    if (l.c.checks_gradients) l.add(checksum, "checksum of gradients", 1, 1);
    if (l.spec.options.mtp_depth > 0) l.add(mtp_sums, "losses of depths", l.spec.options.mtp_depth, 2);
  }
};

}  // namespace forge
