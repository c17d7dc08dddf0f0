#include "parallel/overflow.hpp"

#include <algorithm>

#include "core/to_size.hpp"
#include "device/memory.hpp"
#include "nn/context.hpp"

namespace forge {

template <class T>
ForwardOverflow<T>::ForwardOverflow(const RunBuffers<T>& run, Communicator& stage, const RankShare& share,
                                    std::vector<std::vector<std::vector<Task>>> repeats)
    : run_(run),
      stage_(stage),
      share_(share),
      lists_(std::move(repeats)),
      chunks_(static_cast<int>(share.chunks.size())) {
  for (const auto& layers : share.layers)
    for (const StageLayer& layer : layers) states_ = std::max(states_, layer.state + 1);
  read_.resize(to_size(run.overflow.empty() ? 0 : run.overflow.size()));
}

template <class T>
void ForwardOverflow<T>::begin_step(int microbatches) {
  microbatches_ = microbatches;
  overflowed_.assign(to_size(chunks_ * microbatches * states_), 0);
  again_.assign(to_size(run_.routers.sums.empty() ? 0 : run_.routers.sums.rows()), 0);
}

template <class T>
template <class F>
void ForwardOverflow<T>::each(F f) const {
  const auto both = [&](const auto& of_run, const auto& kept) {
    if (!kept.empty()) f(of_run.data, kept.data, to_size(kept.size()) * sizeof(*kept.data));
  };
  both(run_.routers.sums, run_.kept_sums);
  both(run_.routers.dropped, run_.kept_dropped);
  both(run_.peaks, run_.kept_peaks);
  both(run_.fp8_counts, run_.kept_fp8_counts);
  both(run_.fp8_history.step, run_.kept_fp8_step);
}

template <class T>
void ForwardOverflow<T>::keep(Stream& stream, const Task& task, int state) {
  overflowed_[index(task, state)] = 0;
  fill_zero(stream, run_.overflow.data, to_size(run_.overflow.size()) * sizeof(float));
  each([&](const void* of_run, void* kept, std::size_t bytes) { copy_on_device(stream, kept, of_run, bytes); });
}

template <class T>
const std::vector<Task>& ForwardOverflow<T>::check(Stream& stream, const Task& task, int state) {
  static const std::vector<Task> none;
  stage_.all_reduce(stream, run_.overflow);
  copy_to_host(stream, read_.data(), run_.overflow.data, read_.size() * sizeof(float));
  stream.synchronize();
  if (std::none_of(read_.begin(), read_.end(), [](float f) { return f != 0; })) return none;
  overflowed_[index(task, state)] = 1;
  ++repeats_;
  each([&](void* of_run, const void* kept, std::size_t bytes) { copy_on_device(stream, of_run, kept, bytes); });
  const std::vector<Task>& again = lists_[list_][to_size(task.round)];
  if (stage_.rank() == 0) count(stream, again);
  return again;
}

template <class T>
void ForwardOverflow<T>::count(Stream& stream, const std::vector<Task>& again) {
  const View<double, 2>& sums = run_.routers.sums;
  for (const Task& task : again) {
    if (task.op != TaskOp::forward) continue;
    const std::int64_t layer = layer_of(task, share_).number;
    double& passes = again_[to_size(layer)];
    ++passes;
    copy_to_device(stream, sums.row(layer) + sums.columns() - router_sum_count + repeated_sum, &passes, sizeof passes);
  }
  stream.synchronize();  // the next ones overwrite what is copied
}

FORGE_INSTANTIATE_CLASS(ForwardOverflow);

}  // namespace forge
