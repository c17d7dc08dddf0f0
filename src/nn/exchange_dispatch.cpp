#include "nn/exchange_dispatch.hpp"

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {

template <class T>
ExpertRanks ExchangeDispatch<T>::ranks_of(const Context<T>& ctx) {
  const LayerGroups& g = ctx.groups;
  require(g.ep_size() == ctx.buffers.ep && g.etp_size() == ctx.buffers.etp,
          "experts: the ep or etp group and the buffers differ");
  return {g.ep_size(), g.ep_rank(), g.etp_size(), g.etp_rank(), ctx.spec().E()};
}

// All sources' counts.
template <class T>
std::vector<std::int64_t> ExchangeDispatch<T>::read_counts(const Context<T>& ctx, const DispatchBuffers<T>& b) {
  const MoeShape m = moe_shape(ctx.buffers);
  std::vector<std::int64_t> counts(to_size(m.sources * m.experts));
  copy_to_host(ctx.stream, counts.data(), b.counts.data, counts.size() * sizeof(std::int64_t));
  ctx.stream.synchronize();
  return counts;
}

template <class T>
ExchangeDispatch<T>::ExchangeDispatch(const Context<T>& ctx, const DispatchBuffers<T>& b, const DispatchScratch<T>& s)
    : Dispatch<T>(ctx.stream),
      ctx_(ctx),
      b_(b),
      s_(s),
      shape_(moe_shape(ctx.buffers)),
      ranks_(ranks_of(ctx)),
      plan_(ranks_, read_counts(ctx, b), shape_.round_rows) {}

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

// The experts of a round's received rows, which stand by source.
template <class T>
void ExchangeDispatch<T>::find_experts(int round) {
  const std::vector<std::int64_t> blocks = plan_.blocks(round);
  copy_to_device(ctx_.stream, s_.blocks.data, blocks.data(), blocks.size() * sizeof(std::int64_t));
  ctx_.stream.synchronize();  // `blocks` ends here
  experts_of_blocks(ctx_.stream, s_.blocks, shape_.experts_here, line_of(s_.experts));
}

// Their order by expert.
template <class T>
void ExchangeDispatch<T>::sort_received(int round) {
  if (sorted_ == round) return;
  sorted_ = round;
  find_experts(round);
  moe_sort(ctx_.stream, s_.experts, s_.sort, s_.counts, s_.offsets, s_.order, s_.place);
}

namespace {

// Parts of a buffer of rows, one for each rank of a group.
template <class P>
class Parts {
 public:
  explicit Parts(View<P, 2> rows) : Parts(rows, rows.columns()) {}
  // Parts begin where rows of `pitch` elements would.
  Parts(View<P, 2> rows, std::int64_t pitch) : rows_(rows), pitch_(pitch) {}
  void add(std::int64_t first, std::int64_t count) {
    list_.push_back({rows_.data + first * pitch_, count * rows_.columns()});
  }
  // Behind the last one.
  void append(std::int64_t count) {
    add(next_, count);
    next_ += count;
  }
  std::span<const Communicator::Part> list() const { return list_; }

 private:
  View<P, 2> rows_;
  std::int64_t pitch_, next_ = 0;
  std::vector<Communicator::Part> list_;
};

}  // namespace

template <class T>
template <class P>
void ExchangeDispatch<T>::exchange_out(int round, View<P, 2> assignments, std::int64_t pitch, View<P, 2> received) {
  std::int64_t begin = 0;
  for (int peer = 0; peer < ranks_.etp_rank; ++peer) begin += plan_.received_of(round, peer);
  const std::int64_t own = plan_.received_of(round, ranks_.etp_rank);
  Parts<P> out(assignments, pitch), in(received.slice(begin, begin + own));
  for (int peer = 0; peer < ranks_.ep; ++peer) {
    const Range places = plan_.sent(round, peer);
    out.add(places.begin, places.size());
    in.append(plan_.received(round, peer, ranks_.etp_rank));
  }
  if (ctx_.groups.ep)
    ctx_.groups.ep->all_to_all(this->sending(), out.list(), in.list(), dtype_of<P>);
  else
    copy_on_device(this->sending(), in.list()[0].data, out.list()[0].data, to_size(out.list()[0].count) * sizeof(P));
  if (!ctx_.groups.etp) return;
  Parts<P> mine(received), all(received);
  for (int peer = 0; peer < ranks_.etp; ++peer) {
    mine.add(begin, own);
    all.append(plan_.received_of(round, peer));
  }
  ctx_.groups.etp->all_to_all(this->sending(), mine.list(), all.list(), dtype_of<P>);
}

template <class T>
template <class P>
void ExchangeDispatch<T>::exchange_back(int round, View<P, 2> received, View<P, 2> peer_rows, View<P, 2> assignments) {
  std::vector<std::int64_t> begins{0};
  for (int peer = 0; peer < ranks_.etp; ++peer) begins.push_back(begins.back() + plan_.received_of(round, peer));
  const auto own_begin = begins[to_size(ranks_.etp_rank)];
  const auto own = received.slice(own_begin, begins[to_size(ranks_.etp_rank) + 1]);
  // Rows that came from etp rank p get their sum there: p adds what the others made, one after the other.
  for (int distance = 1; distance < ranks_.etp; ++distance) {
    const int to = (ranks_.etp_rank + distance) % ranks_.etp;
    const int from = (ranks_.etp_rank + ranks_.etp - distance) % ranks_.etp;
    const auto theirs = received.slice(begins[to_size(to)], begins[to_size(to) + 1]);
    const auto got = peer_rows.slice(0, own.rows());
    Communicator& etp = *ctx_.groups.etp;
    etp.group_begin();
    etp.send(ctx_.stream, View<const P, 2>(theirs), to);
    etp.receive(ctx_.stream, got, from);
    etp.group_end(ctx_.stream);
    add<P>(ctx_.stream, line_of(got), line_of(own));
  }
  Parts<P> out(own), in(assignments);
  for (int peer = 0; peer < ranks_.ep; ++peer) {
    const Range places = plan_.sent(round, peer);
    out.append(plan_.received(round, peer, ranks_.etp_rank));
    in.add(places.begin, places.size());
  }
  if (ctx_.groups.ep)
    ctx_.groups.ep->all_to_all(ctx_.stream, out.list(), in.list(), dtype_of<P>);
  else
    copy_on_device(ctx_.stream, in.list()[0].data, out.list()[0].data, to_size(out.list()[0].count) * sizeof(P));
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

// As send_rows: the codes of a rank's places begin where the first of these does, and end before the last.
template <class T>
void ExchangeDispatch<T>::send_codes(int round, View<const T, 2> x, const ScaledOperand& rows, View<T, 2> to) {
  const std::int64_t bytes = coded_row_bytes(rows), n = plan_.rows(round);
  const std::int64_t pitch = s_.assignments.columns() * static_cast<std::int64_t>(sizeof(T));
  auto* const assignments = reinterpret_cast<std::uint8_t*>(s_.assignments.data);
  const auto codes_of = [&](const Range& places) {
    return View<std::uint8_t, 2>(assignments + places.begin * pitch, {{places.size(), bytes}});
  };
  for (int peer = 0; peer < ranks_.ep; ++peer) {
    const Range places = plan_.sent(round, peer);
    if (places.empty()) continue;
    rows_to_codes<T>(this->sending(), x, rows, b_.order.slice(places.begin, places.end), shape_.chosen,
                     codes_of(places));
  }
  const View<std::uint8_t, 2> received(reinterpret_cast<std::uint8_t*>(s_.received.data), {{n, bytes}});
  exchange_out<std::uint8_t>(round, {assignments, {{s_.assignments.rows(), bytes}}}, pitch, received);
  sort_received(round);
  codes_to_rows<T>(this->sending(), received, rows, s_.order.slice(0, n), 1, to.slice(0, n));
}

template <class T>
void ExchangeDispatch<T>::send_rows(int round, View<const T, 2> x, const std::optional<ScaledOperand>& codes,
                                    View<T, 2> to) {
  if (codes) return send_codes(round, x, *codes, to);
  // Only this round's places: the others may hold what has come back.
  for (int peer = 0; peer < ranks_.ep; ++peer) {
    const Range places = plan_.sent(round, peer);
    if (!places.empty())
      permute_rows<T>(this->sending(), x, b_.order.slice(places.begin, places.end), shape_.chosen,
                      s_.assignments.slice(places.begin, places.end));
  }
  const std::int64_t rows = plan_.rows(round);
  const auto received = s_.received.slice(0, rows);
  exchange_out<T>(round, s_.assignments, s_.assignments.columns(), received);
  sort_received(round);
  permute_rows<T>(this->sending(), received, s_.order.slice(0, rows), 1, to.slice(0, rows));
}

template <class T>
void ExchangeDispatch<T>::send_weights(int round, View<const A, 2> values, View<A, 1> to) {
  const View<A, 1> assignments = line_of(s_.weights);
  const std::int64_t rows = plan_.rows(round);
  for (int peer = 0; peer < ranks_.ep; ++peer) {
    const Range places = plan_.sent(round, peer);
    if (!places.empty())
      permute_weights<A>(this->sending(), values, b_.order.slice(places.begin, places.end),
                         assignments.slice(places.begin, places.end));
  }
  const auto received = s_.received_line.slice(0, rows);
  exchange_out<A>(round, s_.weights, 1, received);
  sort_received(round);
  permute_rows<A>(this->sending(), received, s_.order.slice(0, rows), 1, View<A, 2>(to.data, {{rows, 1}}));
}

template <class T>
View<T, 2> ExchangeDispatch<T>::outbox(int round, View<T, 2> buffer) const {
  return buffer.slice(0, plan_.rows(round));
}

template <class T>
void ExchangeDispatch<T>::return_rows(int round, View<const T, 2> from) {
  const std::int64_t rows = plan_.rows(round);
  sort_received(round);
  const auto received = s_.received.slice(0, rows);
  unpermute_rows<T>(ctx_.stream, from.slice(0, rows), s_.place.slice(0, rows), 0, {}, false, received);
  exchange_back<T>(round, received, s_.peer_rows, s_.assignments);
}

template <class T>
void ExchangeDispatch<T>::sum_rows(bool add, View<T, 2> y) {
  unpermute_rows<T>(ctx_.stream, s_.assignments, b_.place, 0, {}, add, y);
}

template <class T>
void ExchangeDispatch<T>::return_weights(int round, View<A, 1> from) {
  const std::int64_t rows = plan_.rows(round);
  const View<const A, 2> line(from.data, {{rows, 1}});
  sort_received(round);
  const auto received = s_.received_line.slice(0, rows);
  unpermute_rows<A>(ctx_.stream, line, s_.place.slice(0, rows), 0, {}, false, received);
  exchange_back<A>(round, received, s_.peer_line, s_.weights);
}

template <class T>
void ExchangeDispatch<T>::place_weights(View<A, 2> values) {
  unpermute_weights<A>(ctx_.stream, line_of(s_.weights), b_.place, values);
}

FORGE_INSTANTIATE_CLASS(ExchangeDispatch);

}  // namespace forge
