#include "train/routers.hpp"

#include <algorithm>

#include "device/memory.hpp"
#include "kernels/moe.hpp"
#include "model/moe_buffers.hpp"

namespace forge {

namespace {

void upload(Stream& stream, View<std::int32_t, 1> to, const std::vector<std::int32_t>& values) {
  copy_to_device(stream, to.data, values.data(), values.size() * sizeof(std::int32_t));
  stream.synchronize();
}

}  // namespace

template <class T>
Routers<T>::Routers(Stream& stream, const BufferContext& context, const RowShare& share, const BufferSet& set)
    : spec_(context.spec) {
  if (!any()) return;
  const Microbatch& mb = context.microbatch;
  std::vector<std::int32_t> scopes, positions;
  for (int rank = 0; rank < mb.cp; ++rank) {
    const auto of_rank = zigzag_positions(mb.sequence_tokens, mb.cp, rank);
    for (std::int64_t s = 0; s < mb.sequences; ++s) {
      scopes.insert(scopes.end(), of_rank.size(), static_cast<std::int32_t>(s));
      positions.insert(positions.end(), of_rank.begin(), of_rank.end());
    }
  }
  const auto own = set.vector<std::int32_t>(Buf::row_scopes), zero = set.vector<std::int32_t>(Buf::zero_scopes);
  const auto first = static_cast<std::ptrdiff_t>(mb.rows() * share.cp_rank);
  upload(stream, own, {scopes.begin() + first, scopes.begin() + first + static_cast<std::ptrdiff_t>(mb.rows())});
  fill_zero(stream, zero.data, static_cast<std::size_t>(zero.size()) * sizeof(std::int32_t));
  row_scopes_ = own;
  zero_scopes_ = zero;
  if (mb.cp > 1) {
    const auto all = set.vector<std::int32_t>(Buf::all_row_scopes),
               at = set.vector<std::int32_t>(Buf::all_row_positions);
    upload(stream, all, scopes);
    upload(stream, at, positions);
    all_row_scopes_ = all;
    all_row_positions_ = at;
  }
  sums_ = set.matrix<double>(Buf::router_sums);
  dropped_ = set.vector<std::int64_t>(Buf::router_dropped);
  if (spec_.options.router_bias) {
    bias_ = set.matrix<A>(Buf::router_bias);
    fill_zero(stream, bias_.data, static_cast<std::size_t>(bias_.size()) * sizeof(A));
  }
}

template <class T>
RouterRun<T> Routers<T>::run(double scopes, double tokens) const {
  return {bias_,
          row_scopes_,
          all_row_scopes_,
          all_row_positions_,
          zero_scopes_,
          sums_,
          dropped_,
          spec_.options.auxiliary_loss_coefficient / scopes,
          spec_.options.router_z_coefficient / tokens};
}

template <class T>
void Routers<T>::start_step(Stream& stream) {
  if (!any()) return;
  fill_zero(stream, sums_.data, static_cast<std::size_t>(sums_.size()) * sizeof(double));
  fill_zero(stream, dropped_.data, static_cast<std::size_t>(dropped_.size()) * sizeof(std::int64_t));
}

template <class T>
void Routers<T>::reduce(Stream& stream, Communicator& all) {
  if (!any()) return;
  if (spec_.options.capacity_factor > 0)
    for (std::int64_t layer = 0; layer < sums_.rows(); ++layer)
      add_counts(stream, dropped_.slice(layer, layer + 1),
                 View<double, 1>(sums_.row(layer) + spec_.E() + dropped_sum, {{1}}));
  all.all_reduce(stream, sums_);
}

template <class T>
void Routers<T>::update_biases(Stream& stream) {
  if (bias_.empty() || spec_.options.router_bias_rate == 0) return;
  for (std::int64_t layer = 0; layer < sums_.rows(); ++layer)
    if (spec_.is_moe(layer))
      router_bias_update<A>(stream, View<const double, 1>(sums_.row(layer), {{spec_.E()}}),
                            spec_.options.router_bias_rate, View<A, 1>(bias_.row(layer), {{spec_.E()}}));
}

template <class T>
std::vector<double> Routers<T>::read_biases(Stream& stream) const {
  std::vector<A> values(static_cast<std::size_t>(bias_.empty() ? 0 : bias_.size()));
  if (!values.empty()) copy_to_host(stream, values.data(), bias_.data, values.size() * sizeof(A));
  stream.synchronize();
  return {values.begin(), values.end()};
}

template <class T>
void Routers<T>::set_biases(Stream& stream, const std::vector<double>& values) {
  const std::vector<A> converted(values.begin(), values.end());
  require(static_cast<std::int64_t>(converted.size()) == (bias_.empty() ? 0 : bias_.size()),
          "routers' biases have E values for each layer");
  if (converted.empty()) return;
  copy_to_device(stream, bias_.data, converted.data(), converted.size() * sizeof(A));
  stream.synchronize();
}

template <class T>
std::vector<RouterReport> Routers<T>::read(Stream& stream, double scopes, double tokens) const {
  std::vector<RouterReport> reports;
  if (!any()) return reports;
  std::vector<double> sums(static_cast<std::size_t>(sums_.size()));
  copy_to_host(stream, sums.data(), sums_.data, sums.size() * sizeof(double));
  const std::vector<double> bias = read_biases(stream);  // waits
  const std::int64_t experts = spec_.E(), width = sums_.columns();
  for (std::int64_t layer = 0; layer < sums_.rows(); ++layer) {
    if (!spec_.is_moe(layer)) continue;
    const double* row = sums.data() + layer * width;
    RouterReport report{layer,
                        {row, row + experts},
                        row[experts + dropped_sum],
                        row[experts + balance_sum] / scopes,
                        row[experts + z_sum] / tokens,
                        0,
                        0};
    if (!bias.empty()) {
      const auto begin = bias.begin() + static_cast<std::ptrdiff_t>(layer * experts);
      const auto [least, most] = std::minmax_element(begin, begin + static_cast<std::ptrdiff_t>(experts));
      report.bias_min = *least;
      report.bias_max = *most;
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

template <class T>
double Routers<T>::loss(const std::vector<RouterReport>& reports) const {
  double sum = 0;
  for (const RouterReport& r : reports)
    sum += spec_.options.auxiliary_loss_coefficient * r.balance_loss + spec_.options.router_z_coefficient * r.z_loss;
  return sum;
}

template class Routers<double>;
template class Routers<float>;
template class Routers<bf16>;

}  // namespace forge
