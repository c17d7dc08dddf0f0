#include "train/routers.hpp"

#include <algorithm>

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {

namespace {

void upload(Stream& stream, View<std::int32_t, 1> to, const std::vector<std::int32_t>& values) {
  copy_to_device(stream, to.data, values.data(), values.size() * sizeof(std::int32_t));
  stream.synchronize();
}

}  // namespace

template <class T>
Routers<T>::Routers(Stream& stream, const BufferContext& context, const RowShare& share, const RouterState<T>& state)
    : spec_(context.spec), state_(state) {
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
  const auto first = static_cast<std::ptrdiff_t>(mb.rows() * share.cp_rank);
  upload(stream, state_.row_scopes,
         {scopes.begin() + first, scopes.begin() + first + static_cast<std::ptrdiff_t>(mb.rows())});
  fill_zero(stream, state_.zero_scopes.data, to_size(state_.zero_scopes.size()) * sizeof(std::int32_t));
  if (mb.cp > 1) {
    upload(stream, state_.all_row_scopes, scopes);
    upload(stream, state_.all_row_positions, positions);
  }
  if (const View<A, 2>& bias = state_.bias; !bias.empty())
    fill_zero(stream, bias.data, to_size(bias.size()) * sizeof(A));
}

template <class T>
RouterScales Routers<T>::scales(double scopes, double tokens) const {
  return {spec_.options.auxiliary_loss_coefficient / scopes, spec_.options.router_z_coefficient / tokens};
}

template <class T>
void Routers<T>::start_step(Stream& stream) {
  if (!any()) return;
  fill_zero(stream, state_.sums.data, to_size(state_.sums.size()) * sizeof(double));
  fill_zero(stream, state_.dropped.data, to_size(state_.dropped.size()) * sizeof(std::int64_t));
}

template <class T>
void Routers<T>::reduce(Stream& stream, Communicator& all) {
  if (!any()) return;
  if (spec_.options.capacity_factor > 0)
    for (std::int64_t layer = 0; layer < state_.sums.rows(); ++layer)
      add_counts(stream, state_.dropped.slice(layer, layer + 1),
                 View<double, 1>(state_.sums.row(layer) + spec_.E() + dropped_sum, {{1}}));
  all.all_reduce(stream, state_.sums);
}

template <class T>
void Routers<T>::update_biases(Stream& stream) {
  if (state_.bias.empty() || spec_.options.router_bias_rate == 0) return;
  for (std::int64_t layer = 0; layer < state_.sums.rows(); ++layer)
    if (spec_.is_moe(layer))
      router_bias_update<A>(stream, View<const double, 1>(state_.sums.row(layer), {{spec_.E()}}),
                            spec_.options.router_bias_rate, View<A, 1>(state_.bias.row(layer), {{spec_.E()}}));
}

template <class T>
std::vector<double> Routers<T>::read_biases(Stream& stream) const {
  std::vector<A> values(to_size(state_.bias.empty() ? 0 : state_.bias.size()));
  if (!values.empty()) copy_to_host(stream, values.data(), state_.bias.data, values.size() * sizeof(A));
  stream.synchronize();
  return {values.begin(), values.end()};
}

template <class T>
void Routers<T>::set_biases(Stream& stream, const std::vector<double>& values) {
  const std::vector<A> converted(values.begin(), values.end());
  require(static_cast<std::int64_t>(converted.size()) == (state_.bias.empty() ? 0 : state_.bias.size()),
          "routers' biases have E values for each layer");
  if (converted.empty()) return;
  copy_to_device(stream, state_.bias.data, converted.data(), converted.size() * sizeof(A));
  stream.synchronize();
}

template <class T>
RouterReading<acc_t<T>> Routers<T>::copy(Stream& stream, Readback& readback) const {
  return {readback.copy(stream, state_.sums), readback.copy(stream, state_.bias)};
}

template <class T>
std::vector<RouterReport> Routers<T>::reports(const RouterReading<A>& read, double scopes, double tokens) const {
  std::vector<RouterReport> reports;
  if (!any()) return reports;
  const auto& [sums, bias] = read;
  const std::int64_t experts = spec_.E(), width = state_.sums.columns();
  for (std::int64_t layer = 0; layer < state_.sums.rows(); ++layer) {
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

FORGE_INSTANTIATE_CLASS(Routers);

}  // namespace forge
