#include "nn/gather_dispatch.hpp"

#include <algorithm>

#include "device/memory.hpp"
#include "kernels/moe.hpp"

namespace forge {

template <class T>
template <class P>
void GatherDispatch<T>::gather(Stream& stream, const LayerGroups& g, View<const P, 2> own, View<P, 2> all) {
  const std::int64_t rows = own.rows() * g.etp_size();
  const View<P, 2> of_group = all.slice(g.ep_rank() * rows, (g.ep_rank() + 1) * rows);
  if (g.etp)
    g.etp->all_gather(stream, own, of_group);
  else
    copy_on_device(stream, of_group.data, own.data, static_cast<std::size_t>(own.size()) * sizeof(P));
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
    copy_on_device(ctx_.stream, own.data, of_group.data, static_cast<std::size_t>(own.size()) * sizeof(P));
}

template <class T>
void GatherDispatch<T>::sort(Context<T>& ctx, const BufferSet& s, View<const std::int32_t, 2> choices) {
  const auto all = s.matrix<std::int32_t>(Buf::group_choices);
  gather<std::int32_t>(ctx.stream, ctx.groups, choices, all);
  moe_sort(ctx.stream, all, s.matrix<std::int32_t>(Buf::own_sort), s.vector<std::int64_t>(Buf::own_counts),
           s.vector<std::int64_t>(Buf::assignment_offsets), s.vector<std::int32_t>(Buf::assignment_order),
           s.matrix<std::int32_t>(Buf::assignment_place));
}

template <class T>
GatherDispatch<T>::GatherDispatch(Context<T>& ctx, const BufferSet& s)
    : Dispatch<T>(ctx.stream),
      ctx_(ctx),
      s_(s),
      shape_(moe_shape(ctx.buffers)),
      offsets_(static_cast<std::size_t>(shape_.experts + 1)) {
  copy_to_host(ctx.stream, offsets_.data(), s.raw(Buf::assignment_offsets), offsets_.size() * sizeof(std::int64_t));
  ctx.stream.synchronize();
  std::int64_t most = 0;
  for (std::size_t e = 0; e + 1 < offsets_.size(); e += static_cast<std::size_t>(shape_.experts_here))
    most = std::max(most, offsets_[e + static_cast<std::size_t>(shape_.experts_here)] - offsets_[e]);
  rounds_ = static_cast<int>(std::max<std::int64_t>((most + shape_.round_rows - 1) / shape_.round_rows, 1));
}

template <class T>
Range GatherDispatch<T>::window(int round) const {
  const auto first = static_cast<std::size_t>(ctx_.groups.ep_rank() * shape_.experts_here);
  const Range own{offsets_[first], offsets_[first + static_cast<std::size_t>(shape_.experts_here)]};
  const std::int64_t begin = std::min(own.begin + round * shape_.round_rows, own.end);
  return {begin, std::min(begin + shape_.round_rows, own.end)};
}

template <class T>
std::vector<std::int64_t> GatherDispatch<T>::offsets(int round) const {
  const auto first = static_cast<std::size_t>(ctx_.groups.ep_rank() * shape_.experts_here);
  const Range here = window(round);
  std::vector<std::int64_t> list;
  for (std::size_t e = 0; e <= static_cast<std::size_t>(shape_.experts_here); ++e)
    list.push_back(std::clamp(offsets_[first + e], here.begin, here.end) - here.begin);
  return list;
}

template <class T>
void GatherDispatch<T>::prepare(int) {}

template <class T>
void GatherDispatch<T>::send_rows(int round, View<const T, 2> x, View<T, 2> to) {
  const auto all = s_.template matrix<T>(Buf::group_rows);
  if (gathered_ != x.data) gather<T>(this->sending(), ctx_.groups, x, all);
  gathered_ = x.data;
  const Range here = window(round);
  permute_rows<T>(this->sending(), all, order().slice(here.begin, here.end), shape_.chosen, to.slice(0, here.size()));
}

template <class T>
void GatherDispatch<T>::send_weights(int round, View<const A, 2> values, View<A, 1> to) {
  const auto all = s_.template matrix<A>(Buf::group_weights);
  gather<A>(this->sending(), ctx_.groups, values, all);
  const Range here = window(round);
  permute_weights<A>(this->sending(), all, order().slice(here.begin, here.end), to.slice(0, here.size()));
}

template <class T>
View<T, 2> GatherDispatch<T>::outbox(int round, Buf buffer) const {
  return s_.template matrix<T>(buffer).slice(0, window(round).size());
}

template <class T>
void GatherDispatch<T>::return_rows(int round, View<const T, 2> from) {
  const Range here = window(round);
  unpermute_rows<T>(ctx_.stream, from.slice(0, here.size()), place(), here.begin, {}, summed_,
                    s_.template matrix<T>(Buf::group_sums));
  summed_ = true;
}

template <class T>
void GatherDispatch<T>::sum_rows(bool add_to, View<T, 2> y) {
  const auto sums = s_.template matrix<T>(Buf::group_sums);
  if (!add_to) return reduce<T>(sums, y);
  // Its own rows of the group's buffer are free now.
  const View<T, 2> own = s_.template matrix<T>(Buf::group_rows).slice(0, shape_.rows);
  gathered_ = nullptr;
  reduce<T>(sums, own);
  add<T>(ctx_.stream, View<const T, 1>(own.data, {{own.size()}}), View<T, 1>(y.data, {{y.size()}}));
}

template <class T>
void GatherDispatch<T>::return_weights(int round, View<A, 1> from) {
  const auto line = s_.template vector<A>(Buf::assignment_weights);
  if (!weighed_) fill_zero(ctx_.stream, line.data, static_cast<std::size_t>(line.size()) * sizeof(A));
  weighed_ = true;
  const Range here = window(round);
  copy_on_device(ctx_.stream, line.data + here.begin, from.data, static_cast<std::size_t>(here.size()) * sizeof(A));
}

template <class T>
void GatherDispatch<T>::place_weights(View<A, 2> values) {
  const auto all = s_.template matrix<A>(Buf::group_weights);
  unpermute_weights<A>(ctx_.stream, s_.template vector<A>(Buf::assignment_weights), place(), all);
  reduce<A>(all, values);
}

template class GatherDispatch<double>;
template class GatherDispatch<float>;
template class GatherDispatch<bf16>;

}  // namespace forge
