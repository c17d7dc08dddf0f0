#include "nn/two_level_dispatch.hpp"

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "nn/host_counts.hpp"

namespace forge {

namespace {

template <class T>
ExpertRanks ranks_of(const Context<T>& ctx) {
  const LayerGroups& g = ctx.groups;
  const MoeShape m = moe_shape(ctx.buffers);
  require(g.ep_rail && g.ep_node && g.ep_rail->size() == m.nodes && g.ep_node->size() == m.node_ranks(),
          "experts: the groups of a node and the buffers differ");
  return {g.ep_size(), g.ep_rank(), 1, 0, ctx.spec().E()};
}

// Rows of codes in the memory of rows.
template <class T>
View<std::uint8_t, 2> coded(const View<T, 2>& rows, std::int64_t count, std::int64_t bytes) {
  return View<std::uint8_t, 2>(reinterpret_cast<std::uint8_t*>(rows.data), {{count, bytes}});
}

}  // namespace

template <class T>
TwoLevelDispatch<T>::TwoLevelDispatch(const Context<T>& ctx, const DispatchBuffers<T>& b, const DispatchScratch<T>& s,
                                      bool fresh)
    : Dispatch<T>(ctx.stream),
      ctx_(ctx),
      b_(b),
      s_(s),
      shape_(moe_shape(ctx.buffers)),
      ranks_(ranks_of(ctx)),
      plan_(ranks_, shape_.nodes, ctx.services.counts->of(b.order.data), shape_.round_rows),
      fresh_(fresh) {}

template <class T>
void TwoLevelDispatch<T>::sort(const Context<T>& ctx, View<const std::int32_t, 2> choices, const SortScratch& sorting,
                               const DispatchBuffers<T>& b, const DispatchScratch<T>& s) {
  const std::int64_t here = moe_shape(ctx.buffers).node_experts();
  node_choices(ctx.stream, choices, here, sorting.row_nodes);
  moe_sort(ctx.stream, sorting.row_nodes, sorting.record_sort, sorting.record_counts, sorting.record_offsets, b.records,
           b.record_place);
  record_entries(ctx.stream, choices, b.record_place, here, s.record_experts, b.order, b.place);
}

// This rank's counts of assignments and of records to all ranks; of what they say the sums of this node.
template <class T>
void TwoLevelDispatch<T>::share(const Context<T>& ctx, const SortScratch& sorting, const DispatchBuffers<T>& b) {
  const MoeShape m = moe_shape(ctx.buffers);
  const int rank = ctx.groups.ep_rank();
  const auto own = sorting.all_counts.slice(rank, rank + 1);
  copy_on_device(ctx.stream, own.data, sorting.counts.data, to_size(m.experts) * sizeof(std::int64_t));
  copy_on_device(ctx.stream, own.data + m.experts, sorting.record_counts.data, to_size(m.nodes) * sizeof(std::int64_t));
  ctx.groups.ep->all_gather(ctx.stream, View<const std::int64_t, 2>(own), sorting.all_counts);
  node_counts(ctx.stream, sorting.all_counts, rank / m.node_ranks() * m.node_experts(), b.counts);
}

template <class T>
template <class P>
auto TwoLevelDispatch<T>::cargo(View<P, 2> from, const Ranges& sent, View<P, 2> to, const Ranges& arrived) -> Cargo {
  const auto parts = [](const View<P, 2>& rows, const Ranges& ranges) {
    Parts list;
    for (const Range& r : ranges) list.push_back({rows.data + r.begin * rows.columns(), r.size() * rows.columns()});
    return list;
  };
  return {dtype_of<P>, parts(from, sent), parts(to, arrived)};
}

// All types in one call.
template <class T>
void TwoLevelDispatch<T>::exchange(Communicator& group, Stream& stream, const std::vector<Cargo>& all, bool back) {
  std::vector<Communicator::Exchange> exchanges;
  for (const Cargo& c : all) exchanges.push_back({back ? c.arrived : c.sent, back ? c.sent : c.arrived, c.type});
  group.all_to_all(stream, exchanges);
}

template <class T>
auto TwoLevelDispatch<T>::places(int round) const -> Ranges {
  Ranges list;
  for (int peer = 0; peer < shape_.node_ranks(); ++peer) list.push_back(plan_.of_node().sent(round, peer));
  return list;
}

template <class T>
auto TwoLevelDispatch<T>::packed(int round) const -> Ranges {
  Ranges list;
  std::int64_t begin = 0;
  for (const Range& r : places(round)) {
    list.push_back({begin, begin + r.size()});
    begin += r.size();
  }
  return list;
}

template <class T>
auto TwoLevelDispatch<T>::arrivals(int round) const -> Ranges {
  Ranges list;
  std::int64_t begin = 0;
  for (int peer = 0; peer < shape_.node_ranks(); ++peer) {
    const std::int64_t count = plan_.of_node().received(round, peer, 0);
    list.push_back({begin, begin + count});
    begin += count;
  }
  return list;
}

// Entries of the staged records by expert.
template <class T>
void TwoLevelDispatch<T>::sort_staged() {
  const std::int64_t n = staged(), entries = shape_.node_chosen;
  moe_sort(this->sending(), s_.staged_experts.slice(0, n), s_.node_sort, s_.node_counts, s_.node_offsets,
           b_.node_order.slice(0, n * entries), b_.node_place.slice(0, n));
  fresh_ = false;
}

// The first hop: a record of each row and node, where these rows are not staged yet.
template <class T>
void TwoLevelDispatch<T>::stage(const RowsOut<T>& out) {
  if (staged_ == out.x.data) return;
  staged_ = out.x.data;
  Stream& stream = this->sending();
  const std::int64_t n = records(), entries = shape_.node_chosen, bytes = out.codes ? coded_row_bytes(*out.codes) : 0;
  const auto order = b_.records.slice(0, n);
  std::vector<Cargo> all;
  if (out.codes) {
    rows_to_codes<T>(stream, out.x, *out.codes, order, shape_.nodes, coded(s_.records, n, bytes));
    all.push_back(of_records(coded(s_.records, n, bytes), coded(s_.staged, staged(), bytes)));
  } else {
    permute_rows<T>(stream, out.x, order, shape_.nodes, s_.records.slice(0, n));
    all.push_back(of_records(s_.records, s_.staged));
  }
  if (!out.weights.empty()) {
    permute_weights<A>(stream, out.weights, b_.order.slice(0, n * entries), line_of(s_.weights).slice(0, n * entries));
    all.push_back(of_records(View<A, 2>(s_.weights.data, {{n, entries}}), s_.staged_weights));
  }
  if (fresh_) all.push_back(of_records(s_.record_experts, s_.staged_experts));
  exchange(*ctx_.groups.ep_rail, stream, all, false);
  if (fresh_) sort_staged();
}

// The second hop of a round: each staged row to its experts.
template <class T>
void TwoLevelDispatch<T>::send_in_node(int round, const RowsOut<T>& out) {
  Stream& stream = this->sending();
  const std::int64_t n = plan_.of_node().rows(round), entries = shape_.node_chosen,
                     bytes = out.codes ? coded_row_bytes(*out.codes) : 0;
  const Ranges sent = packed(round), arrived = arrivals(round);
  const auto staged_codes = coded(s_.staged, staged(), bytes), codes = coded(s_.sent, sent.back().end, bytes);
  std::int64_t begin = 0;
  for (const Range& r : plan_.of_node().stretches(round)) {
    const auto order = b_.node_order.slice(r.begin, r.end);
    if (out.codes)
      permute_codes(stream, staged_codes, order, entries, codes.slice(begin, begin + r.size()));
    else
      permute_rows<T>(stream, s_.staged, order, entries, s_.sent.slice(begin, begin + r.size()));
    if (!out.weights.empty())
      permute_weights<A>(stream, s_.staged_weights, order, line_of(s_.sent_weights).slice(r.begin, r.end));
    begin += r.size();
  }
  std::vector<Cargo> all;
  all.push_back(out.codes ? cargo(codes, sent, coded(s_.received, n, bytes), arrived)
                          : cargo(s_.sent, sent, s_.received, arrived));
  if (!out.weights.empty()) all.push_back(cargo(s_.sent_weights, places(round), s_.received_line, arrived));
  exchange(*ctx_.groups.ep_node, stream, all, false);
}

// The order of a round's received rows by expert.
template <class T>
void TwoLevelDispatch<T>::sort_received(int round) {
  if (sorted_ == round) return;
  sorted_ = round;
  const std::int64_t n = plan_.of_node().rows(round);
  const int here = shape_.node_ranks();
  const ReceivedRound received{here, 1, ranks_.ep_rank % here * shape_.experts_here, round * shape_.round_rows,
                               shape_.round_rows};
  received_order(this->sending(), b_.counts, received, s_.blocks, s_.offsets, s_.order.slice(0, n),
                 s_.place.slice(0, n));
}

template <class T>
RowGroups TwoLevelDispatch<T>::groups(int round) const {
  return {shape_.experts_here, s_.offsets.data, 0, plan_.of_node().rows(round)};
}

template <class T>
void TwoLevelDispatch<T>::send(int round, const RowsOut<T>& out) {
  Stream& stream = this->sending();
  stage(out);
  send_in_node(round, out);
  sort_received(round);
  const std::int64_t n = plan_.of_node().rows(round);
  const auto order = s_.order.slice(0, n);
  if (out.codes)
    codes_to_rows<T>(stream, coded(s_.received, n, coded_row_bytes(*out.codes)), *out.codes, order, 1,
                     out.to.slice(0, n));
  else
    permute_rows<T>(stream, s_.received.slice(0, n), order, 1, out.to.slice(0, n));
  if (!out.weights.empty())
    permute_rows<A>(stream, s_.received_line.slice(0, n), order, 1, View<A, 2>(out.weights_to.data, {{n, 1}}));
}

template <class T>
View<T, 2> TwoLevelDispatch<T>::outbox(int round, View<T, 2> buffer) const {
  return buffer.slice(0, plan_.of_node().rows(round));
}

template <class T>
void TwoLevelDispatch<T>::give_back(int round, View<const T, 2> from, View<const A, 1> weights) {
  Stream& stream = ctx_.stream;
  sort_received(round);
  const std::int64_t n = plan_.of_node().rows(round);
  const auto place = s_.place.slice(0, n);
  const Ranges arrived = arrivals(round);
  unpermute_rows<T>(stream, from.slice(0, n), place, 0, {}, false, s_.received.slice(0, n));
  std::vector<Cargo> all{cargo(s_.sent, packed(round), s_.received, arrived)};
  if (!weights.empty()) {
    unpermute_rows<A>(stream, View<const A, 2>(weights.data, {{n, 1}}), place, 0, {}, false,
                      s_.received_line.slice(0, n));
    all.push_back(cargo(s_.sent_weights, places(round), s_.received_line, arrived));
    weighed_ = true;
  }
  exchange(*ctx_.groups.ep_node, stream, all, true);
  std::int64_t begin = 0;
  for (const Range& r : plan_.of_node().stretches(round)) {
    sum_entries<T>(stream, s_.sent.slice(begin, begin + r.size()), b_.node_place.slice(0, staged()), r.begin, summed_,
                   s_.sums.slice(0, staged()));
    summed_ = true;
    begin += r.size();
  }
}

// The sums of staged rows to their sources, in the place of the rows.
template <class T>
void TwoLevelDispatch<T>::sum_rows(bool add, View<T, 2> y) {
  Stream& stream = ctx_.stream;
  View<T, 2> back = s_.staged;
  if constexpr (forge::rounds<T>)
    convert_rows<A, T>(stream, s_.sums.slice(0, staged()), back.slice(0, staged()));
  else
    back = s_.sums;
  staged_ = nullptr;
  std::vector<Cargo> all{of_records(s_.records, back)};
  if (weighed_) {
    unpermute_weights<A>(stream, line_of(s_.sent_weights).slice(0, staged() * shape_.node_chosen),
                         b_.node_place.slice(0, staged()), s_.staged_weights.slice(0, staged()));
    all.push_back(of_records(View<A, 2>(s_.weights.data, {{records(), shape_.node_chosen}}), s_.staged_weights));
  }
  exchange(*ctx_.groups.ep_rail, stream, all, true);
  unpermute_rows<T>(stream, s_.records.slice(0, records()), b_.record_place, 0, {}, add, y);
}

// They came with the rows.
template <class T>
void TwoLevelDispatch<T>::place_weights(View<A, 2> values) {
  unpermute_weights<A>(ctx_.stream, line_of(s_.weights).slice(0, records() * shape_.node_chosen), b_.place, values);
}

FORGE_INSTANTIATE_CLASS(TwoLevelDispatch);

}  // namespace forge
