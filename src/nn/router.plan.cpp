#include "nn/router.plan.hpp"

#include "config/router_score.hpp"

namespace forge {

namespace {

constexpr Reader B = Reader::backward_input, W = Reader::backward_weight;

bool backward_reads_logits(const ModelSpec& s) {
  return chosen_by_logit(s.options.router_score) || s.options.router_z_coefficient > 0;
}

}  // namespace

std::int64_t balance_scopes(const BufferContext& c) {
  return c.spec.options.auxiliary_loss_scope == AuxiliaryScope::sequence ? c.microbatch.sequences : 1;
}

template <class T>
void RouterBuffers<T>::list(BufferLister& l) {
  const ModelDeck& o = l.spec.options;
  const std::int64_t E = o.experts, k = o.experts_per_token;
  if (backward_reads_logits(l.spec)) l.save(logits, "router logits", l.S, E, B);
  l.save(scores, "router scores", l.S, E, B);
  l.save(choices, "chosen experts", l.S, k, B);
  if (o.capacity_factor > 0) l.save(kept, "kept experts", l.S, k, B);
  l.save(weights, "weights of experts", l.S, k, B);
  if (o.auxiliary_loss_coefficient > 0) l.save(balance, "balance of experts", balance_scopes(l.c), 2 * E + 1, B);
}

template <class T>
void RouterBuffers<T>::list_gradients(BufferLister& l) {
  l.add(d_logits, "gradient of router logits", l.S, l.spec.E(), W);
}

template <class T>
void CapacityScratch<T>::list(BufferLister& l) {
  const bool sequence = l.spec.options.capacity_scope == CapacityScope::sequence;
  const std::int64_t ranks = sequence ? l.c.tp * l.c.microbatch.cp : 1, rows = l.S * ranks;
  const std::int64_t k = l.spec.experts_per_token(), count = (sequence ? l.c.microbatch.sequences : 1) * l.spec.E();
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

template <class T>
void RouterForward<T>::list(BufferLister& l, RouterBuffers<T>& router) {
  const ModelDeck& o = l.spec.options;
  if (!backward_reads_logits(l.spec)) l.add(router.logits, "router logits", l.S, o.experts);
  jittered.list(l);
  if (o.router_z_coefficient > 0) l.add(z, "z of each row", l.S, 1);
  if (o.auxiliary_loss_coefficient > 0)
    l.add(balance_partial, "balance sums", router_partial_rows(l.S) * balance_scopes(l.c), 2 * o.experts + 1);
  if (o.capacity_factor > 0) capacity.list(l);
}

template <class T>
void RouterBackward<T>::list(BufferLister& l) {
  jittered.list(l);
  if (rounds<T>) l.add(d_sums, "sums of its gradient", l.S, l.spec.E());
  l.add(d_weights, "gradient of weights of experts", l.S, l.spec.experts_per_token());
}

template <class T>
void RouterState<T>::list(BufferLister& l) {
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

template struct RouterBuffers<double>;
template struct RouterBuffers<float>;
template struct RouterBuffers<bf16>;
template struct CapacityScratch<double>;
template struct CapacityScratch<float>;
template struct CapacityScratch<bf16>;
template struct RouterForward<double>;
template struct RouterForward<float>;
template struct RouterForward<bf16>;
template struct RouterBackward<double>;
template struct RouterBackward<float>;
template struct RouterBackward<bf16>;
template struct RouterState<double>;
template struct RouterState<float>;
template struct RouterState<bf16>;

void add_router_sends(Sends& sends) {
  const BufferContext& c = sends.c;
  const ModelDeck& o = c.spec.options;
  const MoeShape m = moe_shape(c);
  if (o.auxiliary_loss_coefficient > 0)
    for (const Group group : {Group::tp, Group::cp})
      sends.add(group, Collective::all_reduce, balance_scopes(c) * (2 * m.experts + 1), DType::f64);
  if (o.capacity_factor == 0 || m.fixed) return;
  for (const DType type : {DType::i32, c.precision.accumulate}) {
    sends.add(Group::tp, Collective::all_gather, m.rows * m.chosen, type);
    sends.add(Group::cp, Collective::all_gather, c.tp * m.rows * m.chosen, type);
  }
}

}  // namespace forge
