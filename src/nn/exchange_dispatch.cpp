#include "nn/exchange_dispatch.hpp"

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "nn/host_counts.hpp"

namespace forge {

template <class T>
ExpertRanks ExchangeDispatch<T>::ranks_of(const Context<T>& ctx) {
  const LayerGroups& g = ctx.groups;
  require(g.ep_size() == ctx.buffers.ep && g.etp_size() == ctx.buffers.etp,
          "experts: the ep or etp group and the buffers differ");
  return {g.ep_size(), g.ep_rank(), g.etp_size(), g.etp_rank(), ctx.spec().E()};
}

template <class T>
ExchangeDispatch<T>::ExchangeDispatch(const Context<T>& ctx, const DispatchBuffers<T>& b, const DispatchScratch<T>& s)
    : Dispatch<T>(ctx.stream),
      ctx_(ctx),
      b_(b),
      s_(s),
      shape_(moe_shape(ctx.buffers)),
      ranks_(ranks_of(ctx)),
      plan_(ranks_, ctx.services.counts->of(b.order.data), shape_.round_rows) {}

// Gathered over etp, and those over ep: by ep coordinate, etp coordinate.
template <class T>
void ExchangeDispatch<T>::share(const Context<T>& ctx, const SortScratch& sorting, const DispatchBuffers<T>& b) {
  const auto all = b.counts;
  const LayerGroups& g = ctx.groups;
  const auto of_group = all.slice(g.ep_rank() * g.etp_size(), (g.ep_rank() + 1) * g.etp_size());
  const auto own = of_group.slice(g.etp_rank(), g.etp_rank() + 1);
  copy_on_device(ctx.stream, own.data, sorting.counts.data, to_size(own.size()) * sizeof(std::int64_t));
  if (g.etp) g.etp->all_gather(ctx.stream, View<const std::int64_t, 2>(own), of_group);
  if (g.ep) g.ep->all_gather(ctx.stream, View<const std::int64_t, 2>(of_group), all);
}

// The order of a round's received rows by expert.
template <class T>
void ExchangeDispatch<T>::sort_received(int round) {
  if (sorted_ == round) return;
  sorted_ = round;
  const std::int64_t n = plan_.rows(round);
  const ReceivedRound received{ranks_.ep, ranks_.etp, ranks_.ep_rank * shape_.experts_here, round * shape_.round_rows,
                               shape_.round_rows};
  received_order(ctx_.stream, b_.counts, received, s_.blocks, s_.offsets, s_.order.slice(0, n), s_.place.slice(0, n));
}

template <class T>
template <class P>
auto ExchangeDispatch<T>::traveller(int round, View<P, 2> assignments, std::int64_t pitch, View<P, 2> received) const
    -> Traveller {
  const std::int64_t columns = assignments.columns();
  Traveller rows{dtype_of<P>, columns, reinterpret_cast<std::byte*>(received.data), {}, {}};
  std::int64_t arrived = 0, stretch = 0, end = -1;
  for (int peer = 0; peer < ranks_.etp_rank; ++peer) arrived += plan_.received_of(round, peer);
  for (int peer = 0; peer < ranks_.ep; ++peer) {
    const Range places = plan_.sent(round, peer);
    if (!places.empty() && places.begin != end) stretch = places.begin;
    if (!places.empty()) end = places.end;
    const std::int64_t count = plan_.received(round, peer, ranks_.etp_rank);
    P* const from = assignments.data + stretch * pitch + (places.begin - stretch) * columns;
    rows.assignments.push_back({from, places.size() * columns});
    rows.arrivals.push_back({received.data + arrived * columns, count * columns});
    arrived += count;
  }
  return rows;
}

// Assignments to their ranks' arrivals, or back, all types in one call.
template <class T>
void ExchangeDispatch<T>::exchange_over_ep(Stream& stream, const Travellers& rows, bool back) {
  std::vector<Communicator::Exchange> all;
  for (const Traveller& t : rows)
    all.push_back({back ? t.arrivals : t.assignments, back ? t.assignments : t.arrivals, t.type});
  if (ctx_.groups.ep) return ctx_.groups.ep->all_to_all(stream, all);
  for (const Communicator::Exchange& own : all)
    copy_on_device(stream, own.receive[0].data, own.send[0].data, to_size(own.send[0].count) * size_of(own.type));
}

// What has arrived at a rank of etp, to the others.
template <class T>
void ExchangeDispatch<T>::share_over_etp(int round, const Travellers& rows) {
  if (!ctx_.groups.etp) return;
  std::vector<std::vector<Communicator::Part>> parts;
  for (const Traveller& t : rows) {
    std::vector<Communicator::Part> own, all;
    std::int64_t begin = 0;
    for (int peer = 0; peer < ranks_.etp; ++peer) {
      const std::int64_t count = plan_.received_of(round, peer) * t.columns;
      all.push_back({t.received + to_size(begin) * size_of(t.type), count});
      begin += count;
    }
    own.assign(all.size(), all[to_size(ranks_.etp_rank)]);
    parts.push_back(std::move(own));
    parts.push_back(std::move(all));
  }
  std::vector<Communicator::Exchange> exchanges;
  for (std::size_t i = 0; i < rows.size(); ++i) exchanges.push_back({parts[2 * i], parts[2 * i + 1], rows[i].type});
  ctx_.groups.etp->all_to_all(this->sending(), exchanges);
}

// Rows that came from etp rank p get their sum there: p adds what the others made, one after the other.
template <class T>
template <class P>
void ExchangeDispatch<T>::add_of_etp(int round, View<P, 2> received, View<P, 2> peer_rows) {
  std::vector<std::int64_t> begins{0};
  for (int peer = 0; peer < ranks_.etp; ++peer) begins.push_back(begins.back() + plan_.received_of(round, peer));
  const auto rows_of = [&](int peer) { return received.slice(begins[to_size(peer)], begins[to_size(peer) + 1]); };
  const auto own = rows_of(ranks_.etp_rank);
  for (int distance = 1; distance < ranks_.etp; ++distance) {
    const int to = (ranks_.etp_rank + distance) % ranks_.etp;
    const int from = (ranks_.etp_rank + ranks_.etp - distance) % ranks_.etp;
    const auto got = peer_rows.slice(0, own.rows());
    Communicator& etp = *ctx_.groups.etp;
    etp.group_begin();
    etp.send(ctx_.stream, View<const P, 2>(rows_of(to)), to);
    etp.receive(ctx_.stream, got, from);
    etp.group_end(ctx_.stream);
    add<P>(ctx_.stream, line_of(got), line_of(own));
  }
}

// Received rows stand in an order of their own.
template <class T>
RowGroups ExchangeDispatch<T>::groups(int round) const {
  return {shape_.experts_here, s_.offsets.data, 0, plan_.rows(round)};
}

template <class T>
void ExchangeDispatch<T>::prepare(int round) {
  sort_received(round);
}

// One launch of each kind where one round takes all rows: then their places follow each other. Only this round's
// places: the others may hold what has come back. Codes begin where rows of the same stretch would.
template <class T>
void ExchangeDispatch<T>::send(int round, const RowsOut<T>& out) {
  Stream& stream = this->sending();
  const std::int64_t n = plan_.rows(round), C = s_.assignments.columns();
  const std::int64_t pitch = C * static_cast<std::int64_t>(sizeof(T)),
                     bytes = out.codes ? coded_row_bytes(*out.codes) : 0;
  const View<std::uint8_t, 2> coded(reinterpret_cast<std::uint8_t*>(s_.assignments.data), {{b_.order.rows(), bytes}});
  const View<std::uint8_t, 2> received(reinterpret_cast<std::uint8_t*>(s_.received.data), {{n, bytes}});
  for (const Range& places : plan_.stretches(round)) {
    const auto order = b_.order.slice(places.begin, places.end);
    if (out.codes)
      rows_to_codes<T>(stream, out.x, *out.codes, order, shape_.chosen,
                       View<std::uint8_t, 2>(coded.data + places.begin * pitch, {{places.size(), bytes}}));
    else
      permute_rows<T>(stream, out.x, order, shape_.chosen, s_.assignments.slice(places.begin, places.end));
    if (!out.weights.empty())
      permute_weights<A>(stream, out.weights, order, line_of(s_.weights).slice(places.begin, places.end));
  }
  Travellers rows;
  rows.push_back(out.codes ? traveller(round, coded, pitch, received)
                           : traveller(round, s_.assignments, C, s_.received));
  if (!out.weights.empty()) rows.push_back(traveller(round, s_.weights, 1, s_.received_line));
  exchange_over_ep(stream, rows, false);
  share_over_etp(round, rows);
  sort_received(round);
  const auto order = s_.order.slice(0, n);
  if (out.codes)
    codes_to_rows<T>(stream, received, *out.codes, order, 1, out.to.slice(0, n));
  else
    permute_rows<T>(stream, s_.received.slice(0, n), order, 1, out.to.slice(0, n));
  if (!out.weights.empty())
    permute_rows<A>(stream, s_.received_line.slice(0, n), order, 1, View<A, 2>(out.weights_to.data, {{n, 1}}));
}

template <class T>
View<T, 2> ExchangeDispatch<T>::outbox(int round, View<T, 2> buffer) const {
  return buffer.slice(0, plan_.rows(round));
}

template <class T>
void ExchangeDispatch<T>::give_back(int round, View<const T, 2> from, View<const A, 1> weights) {
  const std::int64_t n = plan_.rows(round);
  sort_received(round);
  const auto place = s_.place.slice(0, n);
  Travellers rows{traveller(round, s_.assignments, s_.assignments.columns(), s_.received)};
  unpermute_rows<T>(ctx_.stream, from.slice(0, n), place, 0, {}, false, s_.received.slice(0, n));
  add_of_etp<T>(round, s_.received, s_.peer_rows);
  if (!weights.empty()) {
    rows.push_back(traveller(round, s_.weights, 1, s_.received_line));
    unpermute_rows<A>(ctx_.stream, View<const A, 2>(weights.data, {{n, 1}}), place, 0, {}, false,
                      s_.received_line.slice(0, n));
    add_of_etp<A>(round, s_.received_line, s_.peer_line);
  }
  exchange_over_ep(ctx_.stream, rows, true);
}

template <class T>
void ExchangeDispatch<T>::sum_rows(bool add, View<T, 2> y) {
  unpermute_rows<T>(ctx_.stream, s_.assignments, b_.place, 0, {}, add, y);
}

template <class T>
void ExchangeDispatch<T>::place_weights(View<A, 2> values) {
  unpermute_weights<A>(ctx_.stream, line_of(s_.weights), b_.place, values);
}

FORGE_INSTANTIATE_CLASS(ExchangeDispatch);

}  // namespace forge
