#pragma once

#include "nn/dispatch.plan.hpp"

namespace forge {

// The pure half of nn/router.hpp.

// A layer's sums of a step, behind the assignments of each expert.
enum RouterSum : std::int64_t { balance_sum, z_sum, dropped_sum };
inline constexpr std::int64_t router_sum_count = 3;

// Scopes of the auxiliary loss in a microbatch on this rank: its sequences, or one.
std::int64_t balance_scopes(const BufferContext&);
bool backward_reads_logits(const ModelSpec& spec);

template <class T>
struct RouterBuffers {
  using A = acc_t<T>;
  View<A, 2> logits, scores;            // (S, E); logits only where B reads them, else in the workspace of forward
  View<std::int32_t, 2> choices, kept;  // (S, k) experts, −1: filler; those that the capacity left, −1: dropped
  View<A, 2> weights;                   // (S, k)
  View<double, 2> balance;              // (scopes, 2E + 1) counts, sums of probabilities, rows
  View<T, 2> d_logits;                  // (S, E)

  void list(BufferLister& l) {
    const ModelDeck& o = l.spec.options;
    const std::int64_t E = o.experts, k = o.experts_per_token;
    if (backward_reads_logits(l.spec)) l.save(logits, "router logits", l.S, E, l.B);
    l.save(scores, "router scores", l.S, E, l.B);
    l.save(choices, "chosen experts", l.S, k, l.B);
    if (o.capacity_factor > 0) l.save(kept, "kept experts", l.S, k, l.B);
    l.save(weights, "weights of experts", l.S, k, l.B);
    if (o.auxiliary_loss_coefficient > 0) l.save(balance, "balance of experts", balance_scopes(l.c), 2 * E + 1, l.B);
  }
  void list_gradients(BufferLister& l) { l.add(d_logits, "gradient of router logits", l.S, l.spec.E(), l.W); }
};

// Workspace of dropping what exceeds a capacity.
template <class T>
struct CapacityScratch {
  using A = acc_t<T>;
  // Of all ranks of a sequence, and of the tp ranks among them.
  View<std::int32_t, 2> all_choices, all_kept, tp_choices;
  View<A, 2> all_weights, tp_weights;
  View<std::int32_t, 2> bins, place;      // (rows, k)
  View<std::int32_t, 1> order;            // (rows k)
  View<std::int64_t, 1> counts, offsets;  // (bins), (bins + 1)
  View<std::int32_t, 2> sort;             // workspace of capacity_drop

  void list(BufferLister& l) {
    const std::int64_t ranks = l.c.tp * l.c.microbatch.cp, rows = l.S * ranks;
    const std::int64_t k = l.spec.experts_per_token(), count = l.c.microbatch.sequences * l.spec.E();
    if (ranks > 1) {
      l.add(all_choices, "choices of all ranks", rows, k);
      l.add(all_weights, "weights of all ranks", rows, k);
      l.add(all_kept, "kept choices of all ranks", rows, k);
      l.add(tp_choices, "choices of tp ranks", l.S * l.c.tp, k);
      l.add(tp_weights, "weights of tp ranks", l.S * l.c.tp, k);
    }
    l.add(bins, "bins of choices", rows, k);
    l.add(place, "places in bins", rows, k);
    l.add(order, "order by bin", rows * k, 1);
    l.add(counts, "choices of each bin", count, 1);
    l.add(offsets, "their begins", count + 1, 1);
    l.add(sort, "order of bins", moe_sort_rows(rows * k), count);
  }
};

// The router's input with jitter, where there is any.
template <class T>
struct JitterScratch {
  View<T, 2> rows;  // (S, C)

  void list(BufferLister& l) {
    if (l.spec.options.router_jitter > 0) l.add(rows, "router input", l.S, l.spec.C());
  }
};
template <class T>
struct RouterForward {
  JitterScratch<T> jittered;
  View<acc_t<T>, 1> z;              // (S)
  View<double, 2> balance_partial;  // workspace of router_statistics
  CapacityScratch<T> capacity;

  void list(BufferLister& l, RouterBuffers<T>& router) {
    const ModelDeck& o = l.spec.options;
    if (!backward_reads_logits(l.spec)) l.add(router.logits, "router logits", l.S, o.experts);
    jittered.list(l);
    if (o.router_z_coefficient > 0) l.add(z, "z of each row", l.S, 1);
    if (o.auxiliary_loss_coefficient > 0)
      l.add(balance_partial, "balance sums", router_partial_rows(l.S) * balance_scopes(l.c), 2 * o.experts + 1);
    if (o.capacity_factor > 0) capacity.list(l);
  }
};
template <class T>
struct RouterBackward {
  JitterScratch<T> jittered;
  View<acc_t<T>, 2> d_sums;     // (S, E) where sums of d_logits need a wider type
  View<acc_t<T>, 2> d_weights;  // (S, k)

  void list(BufferLister& l) {
    jittered.list(l);
    if (rounds<T>) l.add(d_sums, "sums of its gradient", l.S, l.spec.E());
    l.add(d_weights, "gradient of weights of experts", l.S, l.spec.experts_per_token());
  }
};

// What the routers of all layers have for the whole run.
template <class T>
struct RouterState {
  View<std::int32_t, 1> row_scopes;         // (R) sequence of each row of a microbatch
  View<std::int32_t, 1> zero_scopes;        // (R) zeros: all rows in one scope
  View<std::int32_t, 1> all_row_scopes;     // (R cp) the same of the rows of all cp ranks, rank after rank
  View<std::int32_t, 1> all_row_positions;  // (R cp) and their positions
  View<double, 2> sums;  // (layers, E + router_sum_count) of a step: assignments of each expert, then RouterSum
  View<std::int64_t, 1> dropped;  // (layers) assignments that this rank dropped
  View<acc_t<T>, 2> bias;         // (layers, E); empty: none

  void list(BufferLister& l) {
    const std::int64_t layers = l.spec.L() + l.spec.options.mtp_depth, experts = l.spec.E();
    l.add(row_scopes, "sequences of rows", l.R, 1);
    l.add(zero_scopes, "one scope", l.R, 1);
    if (l.c.microbatch.cp > 1) {
      l.add(all_row_scopes, "sequences of all cp ranks' rows", l.c.microbatch.rows_of_all(), 1);
      l.add(all_row_positions, "their positions", l.c.microbatch.rows_of_all(), 1);
    }
    l.add(sums, "sums of routers", layers, experts + router_sum_count);
    l.add(dropped, "dropped assignments", layers, 1);
    if (l.spec.options.router_bias) l.add(bias, "biases of routers", layers, experts);
  }
};

void list_router(Segments& list, Pass pass);

}  // namespace forge
