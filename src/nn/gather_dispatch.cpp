#include "nn/gather_dispatch.hpp"

#include <algorithm>

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "nn/host_counts.hpp"

namespace forge {

template <class T>
template <class P>
void GatherDispatch<T>::gather(Stream& stream, const LayerGroups& g, View<const P, 2> own, View<P, 2> all) {
  const std::int64_t rows = own.rows() * g.etp_size();
  const View<P, 2> of_group = all.slice(g.ep_rank() * rows, (g.ep_rank() + 1) * rows);
  if (g.etp)
    g.etp->all_gather(stream, own, of_group);
  else if (own.data != of_group.data)
    copy_on_device(stream, of_group.data, own.data, to_size(own.size()) * sizeof(P));
  if (g.ep) g.ep->all_gather(stream, View<const P, 2>(of_group), all);
}

template <class T>
template <class P>
void GatherDispatch<T>::reduce(View<P, 2> all, View<P, 2> own) {
  const LayerGroups& g = ctx_.groups;
  const std::int64_t rows = own.rows() * g.etp_size();
  const View<P, 2> of_group = all.slice(g.ep_rank() * rows, (g.ep_rank() + 1) * rows);
  if (g.ep) g.ep->reduce_scatter(ctx_.stream, View<const P, 2>(all), of_group);
  if (g.etp)
    g.etp->reduce_scatter(ctx_.stream, View<const P, 2>(of_group), own);
  else
    copy_on_device(ctx_.stream, own.data, of_group.data, to_size(own.size()) * sizeof(P));
}

template <class T>
void GatherDispatch<T>::sort(const Context<T>& ctx, View<const std::int32_t, 2> choices, const SortScratch& sorting,
                             const DispatchBuffers<T>& b) {
  gather<std::int32_t>(ctx.stream, ctx.groups, choices, sorting.group_choices);
  moe_sort(ctx.stream, sorting.group_choices, sorting.sort, sorting.counts, b.offsets, b.order, b.place);
}

template <class T>
GatherDispatch<T>::GatherDispatch(const Context<T>& ctx, const DispatchBuffers<T>& b, const DispatchScratch<T>& s)
    : Dispatch<T>(ctx.stream),
      ctx_(ctx),
      b_(b),
      s_(s),
      shape_(moe_shape(ctx.buffers)),
      offsets_(ctx.services.counts->of(b.order.data)) {
  std::int64_t most = 0;
  for (std::size_t e = 0; e + 1 < offsets_.size(); e += to_size(shape_.experts_here))
    most = std::max(most, offsets_[e + to_size(shape_.experts_here)] - offsets_[e]);
  rounds_ = static_cast<int>(std::max<std::int64_t>((most + shape_.round_rows - 1) / shape_.round_rows, 1));
}

template <class T>
View<const std::int32_t, 1> GatherDispatch<T>::order(int round) const {
  const Range here = window(round);
  return b_.order.slice(here.begin, here.end);
}

template <class T>
Range GatherDispatch<T>::window(int round) const {
  const auto first = to_size(ctx_.groups.ep_rank() * shape_.experts_here);
  const Range own{offsets_[first], offsets_[first + to_size(shape_.experts_here)]};
  const std::int64_t begin = std::min(own.begin + round * shape_.round_rows, own.end);
  return {begin, std::min(begin + shape_.round_rows, own.end)};
}

template <class T>
std::vector<std::int64_t> GatherDispatch<T>::offsets(int round) const {
  const auto first = to_size(ctx_.groups.ep_rank() * shape_.experts_here);
  const Range here = window(round);
  std::vector<std::int64_t> list;
  for (std::size_t e = 0; e <= to_size(shape_.experts_here); ++e)
    list.push_back(std::clamp(offsets_[first + e], here.begin, here.end) - here.begin);
  return list;
}

template <class T>
RowGroups GatherDispatch<T>::groups(int round) const {
  const Range here = window(round);
  return {shape_.experts_here, b_.offsets.data + ctx_.groups.ep_rank() * shape_.experts_here, here.begin, here.end};
}

template <class T>
void GatherDispatch<T>::prepare(int) {}

template <class T>
View<std::uint8_t, 2> GatherDispatch<T>::gather_codes(View<const T, 2> x, const ScaledOperand& rows) {
  const LayerGroups& g = ctx_.groups;
  const std::int64_t own = (g.ep_rank() * g.etp_size() + g.etp_rank()) * shape_.rows;
  const View<std::uint8_t, 2> all(reinterpret_cast<std::uint8_t*>(s_.group_rows.data),
                                  {{shape_.rows * shape_.sources, coded_row_bytes(rows)}});
  if (gathered_ == x.data) return all;
  const View<std::uint8_t, 2> mine = all.slice(own, own + shape_.rows);
  rows_to_codes<T>(this->sending(), x, rows, {}, 1, mine);
  gather<std::uint8_t>(this->sending(), g, mine, all);
  return all;
}

template <class T>
void GatherDispatch<T>::send_rows(int round, const RowsOut<T>& rows) {
  Stream& stream = this->sending();
  const View<T, 2> to = rows.to.slice(0, window(round).size());
  if (rows.codes) {
    const View<const std::uint8_t, 2> all = gather_codes(rows.x, *rows.codes);
    gathered_ = rows.x.data;
    return codes_to_rows<T>(stream, all, *rows.codes, order(round), shape_.chosen, to);
  }
  if (gathered_ != rows.x.data) gather<T>(stream, ctx_.groups, rows.x, s_.group_rows);
  gathered_ = rows.x.data;
  permute_rows<T>(stream, s_.group_rows, order(round), shape_.chosen, to);
}

template <class T>
void GatherDispatch<T>::send(int round, const RowsOut<T>& rows) {
  send_rows(round, rows);
  if (rows.weights.empty()) return;
  gather<A>(this->sending(), ctx_.groups, rows.weights, s_.group_weights);
  permute_weights<A>(this->sending(), s_.group_weights, order(round), rows.weights_to.slice(0, window(round).size()));
}

template <class T>
View<T, 2> GatherDispatch<T>::outbox(int round, View<T, 2> buffer) const {
  return buffer.slice(0, window(round).size());
}

template <class T>
void GatherDispatch<T>::give_back(int round, View<const T, 2> rows, View<const A, 1> weights) {
  const Range here = window(round);
  unpermute_rows<T>(ctx_.stream, rows.slice(0, here.size()), b_.place, here.begin, {}, summed_, s_.group_sums);
  summed_ = true;
  if (weights.empty()) return;
  const View<A, 2>& line = s_.weights;
  if (!weighed_) fill_zero(ctx_.stream, line.data, to_size(line.size()) * sizeof(A));
  weighed_ = true;
  copy_on_device(ctx_.stream, line.data + here.begin, weights.data, to_size(here.size()) * sizeof(A));
}

template <class T>
void GatherDispatch<T>::sum_rows(bool add_to, View<T, 2> y) {
  if (!add_to) return reduce<T>(s_.group_sums, y);
  // Its own rows of the group's buffer are free now.
  const View<T, 2> own = s_.group_rows.slice(0, shape_.rows);
  gathered_ = nullptr;
  reduce<T>(s_.group_sums, own);
  add<T>(ctx_.stream, line_of(own), line_of(y));
}

template <class T>
void GatherDispatch<T>::place_weights(View<A, 2> values) {
  unpermute_weights<A>(ctx_.stream, line_of(s_.weights), b_.place, s_.group_weights);
  reduce<A>(s_.group_weights, values);
}

FORGE_INSTANTIATE_CLASS(GatherDispatch);

}  // namespace forge
