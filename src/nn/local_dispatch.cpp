#include "nn/local_dispatch.hpp"

#include <algorithm>

#include "kernels/experts/expert_kernels.hpp"
#include "nn/host_counts.hpp"

namespace forge {

template <class T>
LocalDispatch<T>::LocalDispatch(const Context<T>& ctx, const DispatchBuffers<T>& b, const DispatchScratch<T>& s)
    : Dispatch<T>(ctx.stream),
      ctx_(ctx),
      b_(b),
      s_(s),
      shape_(moe_shape(ctx.buffers)),
      rows_(most_own_assignments(ctx.buffers)) {
  require(ctx.groups.ep_size() == 1 && ctx.groups.etp_size() == 1,
          "experts: the ep or etp group and the buffers differ");
  if (!shape_.reads_counts) return;
  begins_.push_back(0);
  for (const std::int64_t count : ctx.services.counts->of(b.order.data)) begins_.push_back(begins_.back() + count);
  rows_ = begins_.back();
}

template <class T>
int LocalDispatch<T>::rounds() const {
  return static_cast<int>(std::max<std::int64_t>((rows_ + shape_.round_rows - 1) / shape_.round_rows, 1));
}

template <class T>
Range LocalDispatch<T>::window(int round) const {
  const std::int64_t begin = std::min(round * shape_.round_rows, rows_);
  return {begin, std::min(begin + shape_.round_rows, rows_)};
}

template <class T>
std::vector<std::int64_t> LocalDispatch<T>::offsets(int round) const {
  const Range here = window(round);
  std::vector<std::int64_t> list;
  list.reserve(begins_.size());
  for (const std::int64_t begin : begins_) list.push_back(std::clamp(begin, here.begin, here.end) - here.begin);
  return list;
}

template <class T>
RowGroups LocalDispatch<T>::groups(int round) const {
  const Range here = window(round);
  return {shape_.experts, b_.offsets.data, here.begin, here.end};
}

// Codes stand where the rows of the same places would.
template <class T>
void LocalDispatch<T>::send(int round, const RowsOut<T>& rows) {
  Stream& stream = this->sending();
  const Range here = window(round);
  const auto order = b_.order.slice(here.begin, here.end);
  const View<T, 2> to = rows.to.slice(0, here.size());
  if (rows.codes) {
    const View<std::uint8_t, 2> coded(reinterpret_cast<std::uint8_t*>(s_.assignments.row(here.begin)),
                                      {{here.size(), coded_row_bytes(*rows.codes)}});
    rows_to_codes<T>(stream, rows.x, *rows.codes, order, shape_.chosen, coded);
    codes_to_rows<T>(stream, coded, *rows.codes, {}, 1, to);
  } else {
    permute_rows<T>(stream, rows.x, order, shape_.chosen, to);
  }
  if (!rows.weights.empty()) permute_weights<A>(stream, rows.weights, order, rows.weights_to.slice(0, here.size()));
}

template <class T>
View<T, 2> LocalDispatch<T>::outbox(int round, View<T, 2>) const {
  const Range here = window(round);
  return s_.assignments.slice(here.begin, here.end);
}

template <class T>
void LocalDispatch<T>::give_back(int round, View<const T, 2>, View<const A, 1> weights) {
  const Range here = window(round);
  if (!weights.empty())
    copy_rows<A>(ctx_.stream, View<const A, 2>(weights.data, {{here.size(), 1}}),
                 s_.weights.slice(here.begin, here.end));
}

template <class T>
void LocalDispatch<T>::sum_rows(bool add, View<T, 2> y) {
  unpermute_rows<T>(ctx_.stream, s_.assignments, b_.place, 0, {}, add, y);
}

template <class T>
void LocalDispatch<T>::place_weights(View<A, 2> values) {
  unpermute_weights<A>(ctx_.stream, line_of(s_.weights), b_.place, values);
}

FORGE_INSTANTIATE_CLASS(LocalDispatch);

}  // namespace forge
