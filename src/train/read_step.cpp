#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/to_size.hpp"
#include "train/session.hpp"

namespace forge {

namespace {

// Mean over the depths of multi-token prediction of their losses per label of their own; 0: none.
double mean_mtp_loss(std::span<const double> sums, const LabelCounts& labels) {
  if (sums.empty()) return 0;
  double loss = 0;
  for (std::size_t k = 0; k < labels.mtp.size(); ++k)
    if (labels.mtp[k] > 0) loss += sums[2 * k] / static_cast<double>(labels.mtp[k]);
  return loss / static_cast<double>(labels.mtp.size());
}

template <class A>
std::optional<LogitReport> logit_report(std::span<const A> peaks, bool finite, double most) {
  if (peaks.empty()) return {};
  LogitReport report{static_cast<double>(*std::max_element(peaks.begin(), peaks.end())), 0};
  if (finite)
    report.clipped_heads =
        std::count_if(peaks.begin(), peaks.end(), [&](A x) { return static_cast<double>(x) > most; });
  return report;
}

}  // namespace

template <class T>
std::size_t Session<T>::readback_bytes() const {
  const auto bytes = [](const auto&... views) { return (Readback::bytes_of(views) + ...); };
  const RouterState<T>& routers = run_.routers;
  return std::max(bytes(run_.scalars, run_.mtp_sums, run_.peaks, routers.sums, routers.bias),
                  bytes(run_.unit_norms, run_.rounding_counts));
}

template <class T>
StepResult Session<T>::read_step(const LabelCounts& labels) {
  readback_.begin();
  const std::span<const double> scalars = readback_.copy(stream_, run_.scalars);
  const std::span<const double> mtp_sums = readback_.copy(stream_, run_.mtp_sums);
  const std::span<const acc_t<T>> peaks = readback_.copy(stream_, run_.peaks);
  const RouterReading<acc_t<T>> routers = routers_->copy(stream_, readback_);
  stream_.synchronize();
  const std::span<const double> sources = scalars.first(to_size(setup_.buffers.sources));
  StepScalars s;
  std::memcpy(&s, scalars.data() + setup_.buffers.leading_sums(), sizeof s);
  const double n = static_cast<double>(std::max<std::int64_t>(labels.main, 1)), mtp = mean_mtp_loss(mtp_sums, labels);
  StepResult result;
  result.loss = s.loss_sum / n;
  if (!mtp_sums.empty()) result.mtp_loss = mtp;
  result.grad_norm = std::sqrt(s.norm_squared);
  result.finite = s.finite != 0;
  result.routers = routers_->reports(routers, router_scopes(), static_cast<double>(labels.tokens));
  for (std::size_t i = 0; i < labels.sources.size(); ++i)
    result.source_losses.push_back(sources[i] / static_cast<double>(labels.sources[i]));
  if (setup_.buffers.pairs) result.pairs = {scalars[0] / n, scalars[1] / n};
  result.logits = logit_report(peaks, result.finite, setup_.deck.optimizer.qk_clip);
  result.total_loss = (s.loss_sum + setup_.deck.train.z_loss_coefficient * s.z_sum) / n +
                      setup_.spec.options.mtp_loss_factor * mtp + routers_->loss(result.routers);
  return result;
}

#define FORGE_INSTANTIATE(T)                               \
  template std::size_t Session<T>::readback_bytes() const; \
  template StepResult Session<T>::read_step(const LabelCounts&);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
