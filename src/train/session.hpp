#pragma once

#include <memory>

#include "comm/communicator.hpp"
#include "kernels/gemm.hpp"
#include "parallel/executor.hpp"
#include "train/setup.hpp"

namespace forge {

// Sums of one step over all ranks, read back once the step is done.
struct StepResult {
  double loss = 0;        // cross-entropy per label
  double total_loss = 0;  // with z-loss
  double grad_norm = 0;   // before clipping
  bool finite = true;
};

struct LossResult {
  double loss_sum = 0;
  std::int64_t labels = 0;
};

// One rank's model, memory and machinery. Everything is allocated in the constructor, in one arena of the planned size.
template <class T>
class Session {
 public:
  // `replicas`: the data-parallel ranks, for scalars; `background`: the same ranks, for gradients behind backward.
  Session(const RunSetup& setup, std::size_t arena_bytes, StorageKind kind, Communicator& replicas,
          Communicator& background, int threads);

  // Loss and gradients of a step, reduced over all ranks; labels: unmasked labels of the step over all ranks.
  // The scalars hold norm, clip coefficient and finiteness for the update.
  void compute_gradients(BatchSource& source, std::int64_t step, std::int64_t labels);
  // Waits for the step and reads its scalars.
  StepResult read_step(std::int64_t labels);
  // Loss of one microbatch of this rank, not reduced.
  double evaluate_microbatch(BatchSource& source, int microbatch);

  Stream& stream() { return stream_; }
  Gemm& gemm() { return *gemm_; }
  Arena& arena() { return arena_; }
  ParameterStorage<T>& storage() { return *storage_; }
  PhaseTimers& timers() { return timers_; }
  View<StepScalars, 1> scalars() const { return scalars_; }
  const RunSetup& setup() const { return setup_; }

 private:
  View<double, 1> scalar(int index) const {
    return View<double, 1>(reinterpret_cast<double*>(scalars_.data) + index, {{1}});
  }

  RunSetup setup_;
  Communicator& replicas_;
  Stream stream_;
  Arena arena_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<ParameterStorage<T>> storage_;
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<Executor<T>> executor_;
  PhaseTimers timers_;
  BufferSet run_set_;
  View<StepScalars, 1> scalars_;
  View<double, 1> norm_partials_;
};

}  // namespace forge
