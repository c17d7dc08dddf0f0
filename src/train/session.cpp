#include "train/session.hpp"

#include <cmath>

#include "nn/rotary_buffers.hpp"

namespace forge {

namespace {

constexpr int loss_index = 0, z_index = 1, norm_index = 2;  // of the members of StepScalars

}  // namespace

template <class T>
Session<T>::Session(const RunSetup& setup, std::size_t arena_bytes, StorageKind kind, Communicator& replicas,
                    Communicator& background, int threads)
    : setup_(setup), replicas_(replicas), stream_(threads), arena_(arena_bytes) {
  const auto library_bytes = static_cast<std::size_t>(setup.deck.machine.workspace_mib) << 20;
  gemm_ = std::make_unique<Gemm>(arena_.allocate(library_bytes, Category::library), library_bytes);
  storage_ = std::make_unique<ParameterStorage<T>>(arena_, stream_, setup_.units, setup_.buffers.precision, kind);
  run_set_.add(run_buffers(setup_.buffers), arena_, Category::data);
  fill_rotary_buffers<T>(stream_, setup_.buffers, run_set_);
  scalars_ = View<StepScalars, 1>(static_cast<StepScalars*>(run_set_.raw(Buf::scalars)), {{1}});
  norm_partials_ = run_set_.vector<double>(Buf::norm_partials);
  fill_zero(stream_, scalars_.data, sizeof(StepScalars));
  if (replicas.size() > 1 && kind.gradients) sync_ = std::make_unique<GradientSync>(background);
  Context<T> context{stream_, *gemm_, arena_, setup_.buffers, {}, {}, setup_.deck.train.seed};
  if (setup_.spec.rope()) {
    context.cosine = run_set_.matrix<acc_t<T>>(Buf::cosine);
    context.sine = run_set_.matrix<acc_t<T>>(Buf::sine);
  }
  executor_ = std::make_unique<Executor<T>>(context, *storage_, setup_.schedule, sync_.get(), timers_);
}

template <class T>
void Session<T>::compute_gradients(BatchSource& source, std::int64_t step, std::int64_t labels) {
  storage_->zero_gradients(stream_);
  fill_zero(stream_, scalars_.data, sizeof(StepScalars));
  const LossScale scale{1 / static_cast<double>(labels), setup_.deck.train.z_loss_coefficient};
  executor_->run_step(source, step, scale, scalar(loss_index), scalar(z_index));
  const auto timer = timers_.start(Phase::reduce);
  replicas_.all_reduce(stream_, scalars_.data, 2, DType::f64);
  for (std::size_t u = 0; u < storage_->size(); ++u)
    sum_of_squares<acc_t<T>>(stream_, storage_->unit(u).gradient, norm_partials_, scalar(norm_index));
  finish_scalars(stream_, scalars_, setup_.deck.optimizer.clip_norm);
}

template <class T>
StepResult Session<T>::read_step(std::int64_t labels) {
  StepScalars s;
  copy_to_host(stream_, &s, scalars_.data, sizeof s);
  stream_.synchronize();
  const double n = static_cast<double>(labels);
  return {s.loss_sum / n, (s.loss_sum + setup_.deck.train.z_loss_coefficient * s.z_sum) / n, std::sqrt(s.norm_squared),
          s.finite != 0};
}

template <class T>
double Session<T>::evaluate_microbatch(BatchSource& source, int microbatch) {
  fill_zero(stream_, scalars_.data, sizeof(StepScalars));
  executor_->evaluate(source, microbatch, scalar(loss_index), scalar(z_index));
  StepScalars s;
  copy_to_host(stream_, &s, scalars_.data, sizeof s);
  stream_.synchronize();
  return s.loss_sum;
}

template class Session<double>;
template class Session<float>;
template class Session<bf16>;

}  // namespace forge
