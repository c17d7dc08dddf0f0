#include "nn/exchange_dispatch.hpp"

#include "device/memory.hpp"
#include "kernels/moe.hpp"

namespace forge {

template <class T>
ExpertRanks ExchangeDispatch<T>::ranks_of(const Context<T>& ctx) {
  const LayerGroups& g = ctx.groups;
  require(g.ep_size() == ctx.buffers.ep && g.etp_size() == ctx.buffers.etp,
          "experts: the ep or etp group and the buffers differ");
  return {g.ep_size(), g.ep_rank(), g.etp_size(), g.etp_rank(), ctx.spec().E()};
}

// All sources' counts. Static shapes need no exchange, and nothing is read.
template <class T>
std::vector<std::int64_t> ExchangeDispatch<T>::read_counts(Context<T>& ctx, const BufferSet& s) {
  const MoeShape m = moe_shape(ctx.buffers);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(m.sources * m.experts), m.capacity);
  if (m.fixed) return counts;
  copy_to_host(ctx.stream, counts.data(), s.raw(Buf::assignment_counts), counts.size() * sizeof(std::int64_t));
  ctx.stream.synchronize();
  return counts;
}

template <class T>
ExchangeDispatch<T>::ExchangeDispatch(Context<T>& ctx, const BufferSet& s)
    : Dispatch<T>(ctx.stream),
      ctx_(ctx),
      s_(s),
      shape_(moe_shape(ctx.buffers)),
      ranks_(ranks_of(ctx)),
      plan_(ranks_, read_counts(ctx, s), shape_.round_rows) {}

template <class T>
void ExchangeDispatch<T>::sort(Context<T>& ctx, const BufferSet& s, View<const std::int32_t, 2> choices) {
  const MoeShape m = moe_shape(ctx.buffers);
  const auto counts = s.vector<std::int64_t>(Buf::own_counts);
  const auto offsets = s.vector<std::int64_t>(Buf::own_offsets);
  const auto place = s.matrix<std::int32_t>(Buf::assignment_place);
  const auto order = s.vector<std::int32_t>(m.fixed ? Buf::own_order : Buf::assignment_order);
  moe_sort(ctx.stream, choices, s.matrix<std::int32_t>(Buf::own_sort), counts, offsets, order, place);
}

// After sort(): padded, or the counts of all sources.
template <class T>
void ExchangeDispatch<T>::share(Context<T>& ctx, const BufferSet& s) {
  const MoeShape m = moe_shape(ctx.buffers);
  const auto counts = s.vector<std::int64_t>(Buf::own_counts);
  if (m.fixed)
    return moe_pad(ctx.stream, s.vector<std::int64_t>(Buf::own_offsets), s.vector<std::int32_t>(Buf::own_order),
                   m.capacity, s.vector<std::int32_t>(Buf::assignment_order),
                   s.matrix<std::int32_t>(Buf::assignment_place));
  // Gathered over etp, and those over ep: by ep coordinate, etp coordinate.
  const auto all = s.matrix<std::int64_t>(Buf::assignment_counts);
  const LayerGroups& g = ctx.groups;
  const auto of_group = all.slice(g.ep_rank() * g.etp_size(), (g.ep_rank() + 1) * g.etp_size());
  const auto own = of_group.slice(g.etp_rank(), g.etp_rank() + 1);
  copy_on_device(ctx.stream, own.data, counts.data, static_cast<std::size_t>(m.experts) * sizeof(std::int64_t));
  if (g.etp) g.etp->all_gather(ctx.stream, View<const std::int64_t, 2>(own), of_group);
  if (g.ep) g.ep->all_gather(ctx.stream, View<const std::int64_t, 2>(of_group), all);
}

// The order of a round's received rows by expert: they stand by source.
template <class T>
void ExchangeDispatch<T>::sort_received(int round) {
  if (sorted_ == round) return;
  sorted_ = round;
  const auto device = s_.template vector<std::int64_t>(Buf::received_blocks);
  if (shape_.fixed) {
    fill_counts(ctx_.stream, shape_.capacity, device);  // nothing comes from the host: a step can be captured
  } else {
    const std::vector<std::int64_t> blocks = plan_.blocks(round);
    copy_to_device(ctx_.stream, device.data, blocks.data(), blocks.size() * sizeof(std::int64_t));
    ctx_.stream.synchronize();  // `blocks` ends here
  }
  const auto experts = s_.template matrix<std::int32_t>(Buf::received_experts);
  experts_of_blocks(ctx_.stream, device, shape_.experts_here, s_.template vector<std::int32_t>(Buf::received_experts));
  moe_sort(
      ctx_.stream, experts, s_.template matrix<std::int32_t>(Buf::received_sort),
      s_.template vector<std::int64_t>(Buf::received_counts), s_.template vector<std::int64_t>(Buf::received_offsets),
      s_.template vector<std::int32_t>(Buf::received_order), s_.template matrix<std::int32_t>(Buf::received_place));
}

namespace {

// Parts of a buffer of rows, one for each rank of a group.
template <class P>
class Parts {
 public:
  explicit Parts(View<P, 2> rows) : rows_(rows) {}
  void add(std::int64_t first, std::int64_t count) {
    list_.push_back({rows_.data + first * rows_.columns(), count * rows_.columns()});
  }
  // Behind the last one.
  void append(std::int64_t count) {
    add(next_, count);
    next_ += count;
  }
  std::span<const Communicator::Part> list() const { return list_; }

 private:
  View<P, 2> rows_;
  std::int64_t next_ = 0;
  std::vector<Communicator::Part> list_;
};

}  // namespace

template <class T>
template <class P>
void ExchangeDispatch<T>::exchange_out(int round, View<P, 2> assignments, View<P, 2> received) {
  std::int64_t begin = 0;
  for (int peer = 0; peer < ranks_.etp_rank; ++peer) begin += plan_.received_of(round, peer);
  const std::int64_t own = plan_.received_of(round, ranks_.etp_rank);
  Parts<P> out(assignments), in(received.slice(begin, begin + own));
  for (int peer = 0; peer < ranks_.ep; ++peer) {
    const Range places = plan_.sent(round, peer);
    out.add(places.begin, places.size());
    in.append(plan_.received(round, peer, ranks_.etp_rank));
  }
  if (ctx_.groups.ep)
    ctx_.groups.ep->all_to_all(this->sending(), out.list(), in.list(), dtype_of<P>);
  else
    copy_on_device(this->sending(), in.list()[0].data, out.list()[0].data,
                   static_cast<std::size_t>(out.list()[0].count) * sizeof(P));
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
  const auto own_begin = begins[static_cast<std::size_t>(ranks_.etp_rank)];
  const auto own = received.slice(own_begin, begins[static_cast<std::size_t>(ranks_.etp_rank) + 1]);
  // Rows that came from etp rank p get their sum there: p adds what the others made, one after the other.
  for (int distance = 1; distance < ranks_.etp; ++distance) {
    const int to = (ranks_.etp_rank + distance) % ranks_.etp;
    const int from = (ranks_.etp_rank + ranks_.etp - distance) % ranks_.etp;
    const auto theirs = received.slice(begins[static_cast<std::size_t>(to)], begins[static_cast<std::size_t>(to) + 1]);
    const auto got = peer_rows.slice(0, own.rows());
    Communicator& etp = *ctx_.groups.etp;
    etp.group_begin();
    etp.send(ctx_.stream, View<const P, 2>(theirs), to);
    etp.receive(ctx_.stream, got, from);
    etp.group_end(ctx_.stream);
    add<P>(ctx_.stream, View<const P, 1>(got.data, {{got.size()}}), View<P, 1>(own.data, {{own.size()}}));
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
    copy_on_device(ctx_.stream, in.list()[0].data, out.list()[0].data,
                   static_cast<std::size_t>(out.list()[0].count) * sizeof(P));
}

template <class T>
void ExchangeDispatch<T>::prepare(int round) {
  if (shape_.exchanges()) sort_received(round);
}

template <class T>
void ExchangeDispatch<T>::send_rows(int round, View<const T, 2> x, View<T, 2> to) {
  const auto assignments = s_.template matrix<T>(Buf::assignments);
  const auto fill = [&](const Range& places, View<T, 2> rows) {
    permute_rows<T>(this->sending(), x, order().slice(places.begin, places.end), shape_.chosen, rows);
  };
  if (!shape_.exchanges()) return fill(plan_.sent(round, 0), to.slice(0, plan_.rows(round)));
  // Only this round's places: the others may hold what has come back.
  for (int peer = 0; peer < ranks_.ep; ++peer) {
    const Range places = plan_.sent(round, peer);
    if (!places.empty()) fill(places, assignments.slice(places.begin, places.end));
  }
  const std::int64_t rows = plan_.rows(round);
  const auto received = first<T>(Buf::received, rows);
  exchange_out<T>(round, assignments, received);
  sort_received(round);
  permute_rows<T>(this->sending(), received, s_.template vector<std::int32_t>(Buf::received_order).slice(0, rows), 1,
                  to.slice(0, rows));
}

template <class T>
void ExchangeDispatch<T>::send_weights(int round, View<const A, 2> values, View<A, 1> to) {
  const auto assignments = s_.template vector<A>(Buf::assignment_weights);
  const std::int64_t rows = plan_.rows(round);
  const auto fill = [&](const Range& places, View<A, 1> line) {
    permute_weights<A>(this->sending(), values, order().slice(places.begin, places.end), line);
  };
  if (!shape_.exchanges()) return fill(plan_.sent(round, 0), to.slice(0, rows));
  for (int peer = 0; peer < ranks_.ep; ++peer) {
    const Range places = plan_.sent(round, peer);
    if (!places.empty()) fill(places, assignments.slice(places.begin, places.end));
  }
  const auto received = first<A>(Buf::received_line, rows);
  exchange_out<A>(round, s_.template matrix<A>(Buf::assignment_weights), received);
  sort_received(round);
  permute_rows<A>(this->sending(), received, s_.template vector<std::int32_t>(Buf::received_order).slice(0, rows), 1,
                  View<A, 2>(to.data, {{rows, 1}}));
}

template <class T>
View<T, 2> ExchangeDispatch<T>::outbox(int round, Buf buffer) const {
  if (shape_.exchanges()) return first<T>(buffer, plan_.rows(round));
  const Range places = plan_.sent(round, 0);
  return s_.template matrix<T>(Buf::assignments).slice(places.begin, places.end);
}

template <class T>
void ExchangeDispatch<T>::return_rows(int round, View<const T, 2> from) {
  if (!shape_.exchanges()) return;
  const std::int64_t rows = plan_.rows(round);
  const auto assignments = s_.template matrix<T>(Buf::assignments);
  sort_received(round);
  const auto received = first<T>(Buf::received, rows);
  unpermute_rows<T>(ctx_.stream, from.slice(0, rows),
                    s_.template matrix<std::int32_t>(Buf::received_place).slice(0, rows), 0, {}, false, received);
  exchange_back<T>(round, received, s_.has(Buf::peer_rows) ? s_.template matrix<T>(Buf::peer_rows) : View<T, 2>(),
                   assignments);
}

template <class T>
void ExchangeDispatch<T>::sum_rows(bool add, View<T, 2> y) {
  unpermute_rows<T>(ctx_.stream, s_.template matrix<T>(Buf::assignments), place(), 0, {}, add, y);
}

template <class T>
void ExchangeDispatch<T>::return_weights(int round, View<A, 1> from) {
  const std::int64_t rows = plan_.rows(round);
  const auto assignments = s_.template matrix<A>(Buf::assignment_weights);
  const View<const A, 2> line(from.data, {{rows, 1}});
  if (!shape_.exchanges()) {
    const Range places = plan_.sent(round, 0);
    return copy_rows<A>(ctx_.stream, line, assignments.slice(places.begin, places.end));
  }
  sort_received(round);
  const auto received = first<A>(Buf::received_line, rows);
  unpermute_rows<A>(ctx_.stream, line, s_.template matrix<std::int32_t>(Buf::received_place).slice(0, rows), 0, {},
                    false, received);
  exchange_back<A>(round, received, s_.has(Buf::peer_line) ? s_.template matrix<A>(Buf::peer_line) : View<A, 2>(),
                   assignments);
}

template <class T>
void ExchangeDispatch<T>::place_weights(View<A, 2> values) {
  unpermute_weights<A>(ctx_.stream, s_.template vector<A>(Buf::assignment_weights), place(), values);
}

template class ExchangeDispatch<double>;
template class ExchangeDispatch<float>;
template class ExchangeDispatch<bf16>;

}  // namespace forge
