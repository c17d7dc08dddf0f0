#pragma once

#include <cstdint>

#include "config/router_score.hpp"
#include "core/bias_columns.hpp"
#include "core/partials.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"
#include "kernels/experts/grouped_product.hpp"
#include "kernels/kernels.hpp"

// The kernels of a mixture-of-experts layer: router, its losses, permutation, capacity. The grouped products are in
// gemm.hpp. E = experts, k = chosen ones of a row, an assignment = (row, choice), number r·k + c, P = R·k assignments;
// A = acc_t of the compute type: a router's arithmetic is fp32, or fp64 in fp64. Expert −1: a dropped assignment; a row
// whose choices are −1 before any were dropped is filler (data/batch_rows.hpp): no router counts it. Nothing here
// depends on the number of threads, and the lower index wins every tie.

namespace forge {

// ---- router
// -----------------------------------------------------------------------------------------------------------

struct RouterOptions {
  std::int64_t experts = 0, chosen = 0;
  ScoreKind score = ScoreKind::softmax;
  bool renormalise =
      false;         // weights are divided by their sum, + 1e-20 unless scores sum to one; logits that choose: always
  double scale = 1;  // of the weights, at last
  std::int64_t groups = 1;       // of equal size, at most 64, of consecutive experts
  std::int64_t groups_used = 1;  // the choice is limited to the best so many; a tie goes to the lower group
  GroupScoreKind group_score = GroupScoreKind::top2_sum;
};

// For each row of logits(R,E):
//   scores(R,E)   = softmax or sigmoid of the logits, for backward and for the auxiliary loss
//   experts(R,k)  = the best by score (or by logit: chosen_by_logit) + bias(E), best first; bias may be empty
//   weights(R,k)  = their scores, without bias, as `options` say
// NaN counts as −Inf in the choice, so that experts are always legal; weights carry it on. Impossible options are
// refused (Error). samples(R): −1 for filler, which has experts −1, weights and scores 0; empty: there is none.
template <class A>
void router_forward(Stream&, RouterOptions options, View<const A, 2> logits, View<const A, 1> bias, View<A, 2> weights,
                    View<std::int32_t, 2> experts, View<A, 2> scores, View<const std::int64_t, 1> samples = {});
// scores and weights for a choice made elsewhere (recorded or forced): experts(R,k) are distinct, or all −1 for filler.
template <class A>
void router_weights(Stream&, RouterOptions options, View<const A, 2> logits, View<const std::int32_t, 2> experts,
                    View<A, 2> weights, View<A, 2> scores);
// A choice that loads all experts alike over E positions, for benchmarks, of experts far apart: expert
// (position + c·E/k) mod E. Where groups limit the choice, to G' of G: group (position·G/E + (c mod G')·G/G') mod G of
// g experts, and there (position + (c div G')·g/⌈k/G'⌉) mod g. −1 for filler, as above.
void balanced_experts(Stream&, RouterOptions options, View<const std::int32_t, 1> positions,
                      View<std::int32_t, 2> experts, View<const std::int64_t, 1> samples = {});
// d_logits(R,E) from d_weights(R,k) and, unless empty, d_scores(R,E), which may be the same memory as d_logits.
// `experts` as chosen, before any were dropped; d_weights of dropped assignments is 0. Filler gets 0, whatever d_scores
// are. logits are read where they choose.
template <class A>
void router_backward(Stream&, RouterOptions options, View<const A, 2> logits, View<const A, 2> scores,
                     View<const std::int32_t, 2> experts, View<const A, 2> d_weights, View<const A, 2> d_scores,
                     View<A, 2> d_logits);

// z-loss of a router (Zoph et al. 2022, ST-MoE): z[r] = lse², lse = log Σ_j e^logits(r,j);
//   d_logits(r,j) += 2 coefficient · lse · softmax(r,j).  Either output may be empty. Filler, by experts(R,k), gets 0;
//   empty: there is none.
template <class A>
void router_z_loss(Stream&, View<const A, 2> logits, double coefficient, View<A, 1> z, View<A, 2> d_logits,
                   View<const std::int32_t, 2> experts = {});

// Input jitter (Fedus et al. 2021, Switch Transformer): y = x · (1 + amount · (2u − 1)), u uniform in (0, 1) by (key;
// sample, position, column); x and y may be the same. The backward of jitter is jitter.
struct Jitter {
  double amount = 0;
  std::uint64_t key = 0;                  // random_key(seed, Purpose::jitter, step, layer)
  View<const std::int64_t, 1> samples;    // (R) global sample index of each row
  View<const std::int32_t, 1> positions;  // (R)
};
template <class T>
void jitter(Stream&, View<const T, 2> x, View<T, 2> y, Jitter how);

// ---- balance of the experts
// -------------------------------------------------------------------------------------------

// Table of G scopes (sequences, or one microbatch), for sums over the ranks that share the rows of a scope:
//   table(G, 2E+1) = counts of assignments by expert, sums of probabilities by expert, number of rows.
// scope(R) is each row's, −1: left out, as filler is. experts as chosen, before any were dropped. The probability of a
// row is its scores, divided by their sum for sigmoid. `partial`: router_partial_rows(R) · G rows of 2E+1 doubles of
// workspace.
template <class A>
void router_statistics(Stream&, RouterOptions options, View<const A, 2> scores, View<const std::int32_t, 2> experts,
                       View<const std::int32_t, 1> scope, View<double, 2> partial, View<double, 2> table);
// loss[0] += Σ_g E Σ_i f_i P_i,  f_i = counts_i / (rows · k),  P_i = probabilities_i / rows, from the reduced table:
// the same on every rank that shares it. A scope without rows adds nothing.
void router_balance_loss(Stream&, RouterOptions options, View<const double, 2> table, View<double, 1> loss);
// d_scores(R,E) = coefficient · ∂(Σ_g E Σ_i f_i P_i) / ∂ scores, the counts being constants; rows of no scope get 0,
// and so do rows of a scope without any.
template <class A>
void router_balance_gradient(Stream&, RouterOptions options, View<const A, 2> scores, View<const double, 2> table,
                             View<const std::int32_t, 1> scope, double coefficient, View<A, 2> d_scores);
// counts = value.
void fill_counts(Stream&, std::int64_t value, View<std::int64_t, 1> counts);
// load(E) += counts(E), over the microbatches of a step.
void add_counts(Stream&, View<const std::int64_t, 1> counts, View<double, 1> load);
// bias(E) += rate · sign(mean(load) − load) (Wang et al. 2024, auxiliary-loss-free load balancing).
template <class A>
void router_bias_update(Stream&, View<const double, 1> load, double rate, View<A, 1> bias);

// ---- order of the assignments
// -----------------------------------------------------------------------------------------------

// Stable order of the assignments of experts(R,k) by expert; dropped assignments (−1) are in none.
//   counts(E), offsets(E+1): assignments of expert e stand at places [offsets[e], offsets[e+1])
//   order(P): number of the assignment at a place; −1 behind the last.  place(R,k): the inverse; −1 for dropped
//   assignments
// `workspace`: (moe_sort_rows(P), E).
void moe_sort(Stream&, View<const std::int32_t, 2> experts, View<std::int32_t, 2> workspace,
              View<std::int64_t, 1> counts, View<std::int64_t, 1> offsets, View<std::int32_t, 1> order,
              View<std::int32_t, 2> place);
// A round of those that all sources' experts(ep·etp, E) send to N of them, from `first` on
// (layout/dispatch_rounds.hpp): `rows` places of their order by expert and source, from `begin` on.
struct ReceivedRound {
  int ep = 1, etp = 1;
  std::int64_t first = 0, begin = 0, rows = 0;
};
// From counts(ep·etp, E) of all sources the order by expert of rows as they arrive, by source and then by expert:
// offsets(N+1), order and place as of moe_sort; nothing behind the last row. `blocks`(N·ep·etp + 1): workspace.
void received_order(Stream&, View<const std::int64_t, 2> counts, ReceivedRound round, View<std::int64_t, 1> blocks,
                    View<std::int64_t, 1> offsets, View<std::int32_t, 1> order, View<std::int32_t, 2> place);

// rows(P,C) = x(R,C) of each assignment of order(P); zero where it is −1. P may be a part of the places:
// order.slice(…).
template <class T>
void permute_rows(Stream&, View<const T, 2> x, View<const std::int32_t, 1> order, std::int64_t chosen, View<T, 2> rows);
// y(r,:) = Σ_c weights(r,c) · rows(place(r,c) − first, :) over the places of [first, first + P), in A; weights may be
// empty (1); with `add`, += . Without weights, the adjoint of permute_rows; its own adjoint is permute_rows.
template <class T>
void unpermute_rows(Stream&, View<const T, 2> rows, View<const std::int32_t, 2> place, std::int64_t first,
                    View<const acc_t<T>, 2> weights, bool add, View<T, 2> y);
// values(P) = weights of each assignment of order(P), 0 where it is −1; and back: d_weights(r,c) = d_values at its
// place, 0 for dropped assignments.
template <class A>
void permute_weights(Stream&, View<const A, 2> weights, View<const std::int32_t, 1> order, View<A, 1> values);
template <class A>
void unpermute_weights(Stream&, View<const A, 1> d_values, View<const std::int32_t, 2> place, View<A, 2> d_weights);

// ---- rows in two hops
// -----------------------------------------------------------------------------------------------------

// A record is (row, node): a row with experts on a node, which has `node_experts` of them.
// nodes(R, nodes): the node's number where one of experts(R,k) is there, else −1. moe_sort of these is records by node.
void node_choices(Stream&, View<const std::int32_t, 2> experts, std::int64_t node_experts, View<std::int32_t, 2> nodes);
// With record(R, nodes), their places: entries(records, q) = experts of a record, counted from the node's first one,
// rising; −1 behind the last. order(records · q) and place(R,k): as of moe_sort, of entries.
void record_entries(Stream&, View<const std::int32_t, 2> experts, View<const std::int32_t, 2> record,
                    std::int64_t node_experts, View<std::int32_t, 2> entries, View<std::int32_t, 1> order,
                    View<std::int32_t, 2> place);
// of_node(ranks, node_experts) = Σ over nodes of counts(nodes · ranks, …)(node · ranks + rank, first + expert).
void node_counts(Stream&, View<const std::int64_t, 2> counts, std::int64_t first, View<std::int64_t, 2> of_node);
// sums(r,:) = or, with `add`, += Σ_c rows(place(r,c) − first, :) over the places of [first, first + P), one after the
// other in A.
template <class T>
void sum_entries(Stream&, View<const T, 2> rows, View<const std::int32_t, 2> place, std::int64_t first, bool add,
                 View<acc_t<T>, 2> sums);
// rows(P, bytes) = x(R, bytes) of each assignment of order(P), none of which is −1: rows as rows_to_codes leaves them.
void permute_codes(Stream&, View<const std::uint8_t, 2> x, View<const std::int32_t, 1> order, std::int64_t chosen,
                   View<std::uint8_t, 2> rows);

// ---- capacity
// ---------------------------------------------------------------------------------------------------------

enum class DropBy { position, probability };
struct CapacityOptions {
  std::int64_t experts = 0, scopes = 1;
  double factor = 1;  // of the balanced number of a scope's assignments
  DropBy by = DropBy::position;
};
// The workspace of capacity_drop, with G·E bins.
struct CapacityWorkspace {
  View<std::int32_t, 2> bins;     // (R,k)
  View<std::int32_t, 2> place;    // (R,k)
  View<std::int32_t, 1> order;    // (R·k)
  View<std::int64_t, 1> counts;   // (G·E)
  View<std::int64_t, 1> offsets;  // (G·E + 1)
  View<std::int32_t, 2> sort;     // (moe_sort_rows(R·k), G·E)
};
// kept(R,k) = experts(R,k), with −1 for the assignments over the capacity of their (scope, expert), which is
// balanced_rows() of the assignments in the scope: filler has none. Assignments of the lowest positions stay, or of the
// largest weights; ties: the lower position, then the lower row. scope(R) is each row's (Σ over ranks needs all rows of
// a scope here), positions(R) its key of order. dropped[0] += assignments that were dropped.
template <class A>
void capacity_drop(Stream&, CapacityOptions options, View<const std::int32_t, 2> experts, View<const A, 2> weights,
                   View<const std::int32_t, 1> scope, View<const std::int32_t, 1> positions,
                   CapacityWorkspace workspace, View<std::int32_t, 2> kept, View<std::int64_t, 1> dropped);

// ---- activation
// -------------------------------------------------------------------------------------------------------

// act(P,F) = g(gate) · h(up) · weights(P), g and h as of Gate: the router's weight enters before the down-projection,
// which is linear.
template <class T>
void weighted_swiglu_forward(Stream&, View<const T, 2> gate_up, View<const acc_t<T>, 1> weights, View<T, 2> act,
                             Gate gate = Gate::silu);
// d_weights(P) = Σ_j d_act · g(gate) · h(up). d_gate_up may alias gate_up. act, unless it is empty, gets the output of
// weighted_swiglu_forward, to the bit.
template <class T>
void weighted_swiglu_backward(Stream&, View<const T, 2> gate_up, View<const acc_t<T>, 1> weights,
                              View<const T, 2> d_act, View<T, 2> d_gate_up, View<acc_t<T>, 1> d_weights,
                              View<T, 2> act = {}, Gate gate = Gate::silu);

// ---- biases of the experts
// -------------------------------------------------------------------------------------------

// Rows stand by expert, as `groups` says; those behind the last expert's are of none, and stay as they are. Entry j of
// a bias, j < which.columns, belongs to column which.first + j of x and d.
//   x(r, first + j) += weights(r) · bias(expert of r, j);  weights(P) may be empty (1)
template <class T>
void expert_bias_forward(Stream&, const RowGroups& groups, View<const T, 2> bias, BiasColumns which,
                         View<const acc_t<T>, 1> weights, View<T, 2> x);
// d_bias(e, j) += Σ over the rows of expert e, in their order, of weights(r) · d(r, first + j).
template <class T>
void expert_bias_backward(Stream&, const RowGroups& groups, View<const T, 2> d, BiasColumns which,
                          View<const acc_t<T>, 1> weights, View<acc_t<T>, 2> d_bias);
// d_weights(r) += Σ_j bias(expert of r, j) · d(r, first + j).
template <class T>
void expert_bias_weights(Stream&, const RowGroups& groups, View<const T, 2> bias, BiasColumns which, View<const T, 2> d,
                         View<acc_t<T>, 1> d_weights);

// ---- gate of the shared experts
// -----------------------------------------------------------------------------------------

// x = 1 / (1 + e^−x), in place.
template <class A>
void sigmoid(Stream&, View<A, 1> x);
// y(r,:) = gate(r) · x(r,:).
template <class T>
void gate_rows(Stream&, View<const T, 2> x, View<const acc_t<T>, 1> gate, View<T, 2> y);
// dx(r,:) = gate(r) · dy(r,:);  d_logit(r) = gate(r) (1 − gate(r)) <dy(r,:), x(r,:)>, gate being a sigmoid. dx may
// alias dy.
template <class T>
void gate_rows_backward(Stream&, View<const T, 2> dy, View<const T, 2> x, View<const acc_t<T>, 1> gate, View<T, 2> dx,
                        View<T, 1> d_logit);

}  // namespace forge
