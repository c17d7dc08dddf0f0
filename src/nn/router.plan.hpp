#pragma once

#include "nn/dispatch.plan.hpp"

namespace forge {

// The pure half of nn/router.hpp.

// A layer's sums of a step, behind the assignments of each expert.
enum RouterSum : std::int64_t { balance_sum, z_sum, dropped_sum };
inline constexpr std::int64_t router_sum_count = 3;

// Scopes of the auxiliary loss in a microbatch on this rank: its sequences, or one.
std::int64_t balance_scopes(const BufferContext&);

template <class T>
struct RouterBuffers {
  using A = acc_t<T>;
  View<A, 2> logits, scores;            // (S, E); logits only where B reads them, else in the workspace of forward
  View<std::int32_t, 2> choices, kept;  // (S, k) experts; those that the capacity left, −1: dropped
  View<A, 2> weights;                   // (S, k)
  View<double, 2> balance;              // (scopes, 2E + 1) counts, sums of probabilities, rows
  View<T, 2> d_logits;                  // (S, E)

  void list(BufferLister& l);
  void list_gradients(BufferLister& l);
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

  void list(BufferLister& l);
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

  void list(BufferLister& l, RouterBuffers<T>& router);
};
template <class T>
struct RouterBackward {
  JitterScratch<T> jittered;
  View<acc_t<T>, 2> d_sums;     // (S, E) where sums of d_logits need a wider type
  View<acc_t<T>, 2> d_weights;  // (S, k)

  void list(BufferLister& l);
};

// What the routers of all layers have for the whole run.
template <class T>
struct RouterState {
  View<std::int32_t, 1> row_scopes;         // (R) sequence of each row of a microbatch
  View<std::int32_t, 1> zero_scopes;        // (R) zeros: all rows in one scope
  View<std::int32_t, 1> all_row_scopes;     // (R cp) the same of the rows of all cp ranks, rank after rank
  View<std::int32_t, 1> all_row_positions;  // (R cp) and their positions
  View<double, 2> sums;  // (layers, E + 3) of a step: assignments of each expert; auxiliary loss, z-loss, dropped ones
  View<std::int64_t, 1> dropped;  // (layers) assignments that this rank dropped
  View<acc_t<T>, 2> bias;         // (layers, E); empty: none

  void list(BufferLister& l);
};

// Of forward; B sends nothing.
void add_router_sends(Sends& sends);

}  // namespace forge
