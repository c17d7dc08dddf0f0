#include "train/session.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/faults.hpp"
#include "core/normal.hpp"
#include "core/to_size.hpp"
#include "kernels/experts/grouped_cutlass.hpp"
#include "kernels/kernels.hpp"
#include "model/cudnn_attention.hpp"
#include "nn/cache_layers.hpp"
#include "nn/rotary_buffers.hpp"
#include "optim/rule.hpp"
#include "plan/task_segments.hpp"

namespace forge {

namespace {

// Whose time a task of a step takes; transfers run behind others.
std::optional<Phase> phase_of(const Task& task) {
  if (task.of_step()) return Phase::reduce;
  if (task.track >= 0 || task.op == TaskOp::end_pair) return Phase::backward;
  if (!is_compute(task.action.op)) return {};
  return task.action.op == Op::forward ? Phase::forward : Phase::backward;
}

}  // namespace

template <class T>
Session<T>::Session(const RunSetup& setup, std::size_t arena_bytes, RunKind kind, Mesh& mesh, int threads)
    : setup_(setup), mesh_(mesh), arena_(arena_bytes), stream_(threads) {
  const RankShare& share = setup_.share;
  const StorageKind stored = storage_kind(kind, setup_.buffers.optimizer);
  const auto library_bytes = to_size(setup.deck.machine.workspace_mib) << 20;
  void* const for_libraries = arena_.allocate(library_bytes, Category::library);
  const KernelChoice& asked = setup_.buffers.kernels;
  const bool by_cutlass = takes_cutlass(setup_.deck, asked.grouped) && cutlass_has_kernels_here();
  gemm_ = std::make_unique<Gemm>(for_libraries, library_bytes, by_cutlass, spared_multiprocessors(setup_));
  const bool by_cudnn = takes_cudnn(setup_.deck, setup_.buffers, cudnn_is_preferred_here());
  if (by_cudnn) cudnn_ = std::make_unique<CudnnAttention>(for_libraries, library_bytes);
  storage_ = std::make_unique<ParameterStorage<T>>(arena_, stream_, share.units, setup_.buffers.precision, stored);
  gather_ = std::make_unique<ParameterGather<T>>(arena_, stream_, *storage_, mesh, setup_, run_.amax_history);
  allocate(arena_, setup_.buffers, Category::data, run_);
  const KeptShare kept = share.kept(setup_.spec);
  allocate(arena_, setup_.buffers, Category::data, scored_, kept);
  allocate(arena_, setup_.buffers, Category::activations, generation_, kept);
  const RoundingSizes rounded = rounding_sizes(setup_.buffers, share);
  std::array<ProductScratch<T>, 2> scratch;
  for (int track = 0; track < scratch_tracks(setup_.buffers, stored.gradients); ++track) {
    allocate(arena_, setup_.buffers, Category::workspace, scratch[to_size(track)].rounding, rounded);
    DroppedRows<T> dropped;
    allocate(arena_, setup_.buffers, Category::workspace, dropped, stored.gradients);
    scratch[to_size(track)].dropped = dropped.values;
  }
  if (keeps_of_matrices(stored.optimizer)) {
    const std::int64_t count = share.line_moments();
    allocate(arena_, setup_.buffers, Category::optimizer, line_moments_, count);
    fill_zero(stream_, line_moments_.values.data, to_size(count) * sizeof(acc_t<T>));
  }
  fill_rotary_buffers(stream_, setup_.buffers, run_);
  clear(line_of(run_.amax_history.entries));
  clear(run_.amax_history.given);
  scalars_ = View<StepScalars, 1>(
      static_cast<StepScalars*>(static_cast<void*>(run_.scalars.data + setup_.buffers.leading_sums())), {{1}});
  fill_zero(stream_, run_.scalars.data, to_size(run_.scalars.size()) * sizeof(double));
  if (stored.gradients) sync_ = std::make_unique<GradientSync<T>>(arena_, stream_, *storage_, mesh);
  // Keys and values, rows behind W, rows to experts behind shared ones, and collectives of pairs of passes.
  if (mesh.cp().size() > 1 || mesh.tp().size() > 1 || setup_.deck.train.overlap != Overlap::none ||
      (setup_.spec.Fs() > 0 && mesh.ep().size() * mesh.etp().size() > 1))
    exchange_ = std::make_unique<Stream>(1, Stream::Kind::Worker);
  const auto of = [&](Group group) { return mesh.of(group).size() > 1 ? &mesh.of(group) : nullptr; };
  const LayerServices<T> services{
      .stream = stream_,
      .gemm = *gemm_,
      .arena = arena_,
      .buffers = setup_.buffers,
      .cosine = run_.cosine,
      .sine = run_.sine,
      .seed = setup_.deck.train.seed,
      .groups = {of(Group::tp), of(Group::cp), exchange_.get(), of(Group::ep), of(Group::etp), of(Group::tp_behind),
                 of(Group::ep_rail), of(Group::ep_node), of(Group::cp_inner), of(Group::cp_outer)},
      .routers = run_.routers,
      .fresh = sync_ ? &sync_->fresh() : nullptr,
      .attention = by_cudnn ? AttentionKernel::cudnn : chosen_attention(setup_.deck, asked.attention),
      .rows_in_order = mesh.cp().size() == 1,
      .one_document = setup_.deck.data.one_document(),
      .cudnn = cudnn_.get(),
      .peaks = run_.peaks,
      .scratch = scratch,
      .amax_history = run_.amax_history,
      .counts = &counts_};
  routers_ = std::make_unique<Routers<T>>(stream_, setup_.buffers, setup_.rows(), run_.routers);
  const Range rows = vocabulary_rows(setup_.spec, setup_.mesh.tp, share.tp_rank);
  evaluation_ = evaluation_tasks(share, setup_.schedule);
  gathers_ = gather_tasks(share);
  update_ = update_tasks(share, setup_.spec.options.router_bias);
  readback_ = Readback(readback_bytes());
  RunTasks run = run_tasks(share, setup_.schedule, setup_.smaller, setup_.buffers.recompute, stored.gradients);
  if (stored.gradients) steps_ = std::move(run.tasks);
  const PipelinePart part{share, std::move(run.tables)};
  executor_ = std::make_unique<Executor<T>>(services, *storage_, *gather_, sync_.get(), part,
                                            VocabularyPart{rows.begin, rows.size()}, mesh);
  if (setup_.buffers.cache_tokens > 0) start_generation();
  mesh.measure_in(&timeline_);
}

// A row of keys has its position; what is behind a text is zero, or an earlier text's.
template <class T>
void Session<T>::start_generation() {
  const GenerationBuffers<T>& g = generation_;
  const std::int64_t tokens = setup_.buffers.cache_tokens, part = g.positions.size();
  CacheLayers<T> layers(setup_.spec, setup_.share.kept(setup_.spec), g.keys, g.values, g.delta, cache_);
  for (const std::vector<StageLayer>& chunk : setup_.share.layers)
    for (const StageLayer& layer : chunk)
      if (layer.kind == LayerKind::block && !layer.trains_only()) layers.add(layer.number);
  for (const View<T, 2>& kept : {g.keys, g.values}) fill_zero(stream_, kept.data, to_size(kept.size()) * sizeof(T));
  std::vector<std::int32_t> positions(to_size(part));
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i % to_size(tokens));
  copy_to_device(stream_, g.positions.data, positions.data(), positions.size() * sizeof(std::int32_t));
  stream_.synchronize();
  cache_.positions = g.positions;
  cache_.places = g.places;
  cache_.capacity = tokens;
  executor_->generate_with(&cache_, {g.rows, g.logits});
}

template <class T>
void Session<T>::initialise() {
  storage_->initialise(stream_, setup_.deck.train.seed);
  parameters_changed();
}

template <class T>
std::vector<std::span<const std::byte>> Session<T>::draw_received(double gradients) {
  auto memory = gather_->draw_gathered(stream_, setup_.deck.train.seed);
  draw_edge(Region::input, 1, memory);
  draw_edge(Region::output_gradient, gradients, memory);
  return memory;
}

// All slots get the numbers of the first.
template <class T>
void Session<T>::draw_edge(Region edge, double deviation, std::vector<std::span<const std::byte>>& memory) {
  const std::uint64_t key = random_key(setup_.deck.train.seed, Purpose::initial_values, hash_of(name_of(edge)));
  for (const std::span<std::byte> slot : executor_->received(edge)) {
    const auto count = static_cast<std::int64_t>(slot.size() / sizeof(T));
    fill_normal(stream_, {key, 0, deviation}, 0, 0, View<T, 2>(reinterpret_cast<T*>(slot.data()), {{1, count}}));
    memory.emplace_back(slot);
  }
  stream_.synchronize();
}

template <class T>
void Session<T>::sum_losses() {
  if (setup_.share.tp_rank == 0) return;
  const View<double, 1> losses = summed_to(2);
  fill_zero(stream_, losses.data, to_size(losses.size()) * sizeof(double));
  if (!run_.mtp_sums.empty()) fill_zero(stream_, run_.mtp_sums.data, to_size(run_.mtp_sums.size()) * sizeof(double));
}

template <class T>
MtpLosses Session<T>::mtp_losses(const LabelCounts& labels) const {
  MtpLosses losses{{}, run_.mtp_sums};
  const double factor = setup_.spec.options.mtp_loss_factor / static_cast<double>(setup_.spec.options.mtp_depth);
  for (std::int64_t k = 0; k < setup_.spec.options.mtp_depth; ++k) {
    const std::int64_t n = labels.mtp[to_size(k)];
    losses.per_label.push_back(n > 0 ? factor / static_cast<double>(n) : 0);
  }
  return losses;
}

template <class T>
void Session<T>::compute_gradients(BatchSource& source, std::int64_t step, const LabelCounts& labels) {
  now_ = step;
  executor_->miscompute(miscompute_fault(mesh_.rank(), step));
  executor_->use(setup_.schedule_number(step), routers_->scales(router_scopes(), static_cast<double>(labels.tokens)));
  const LossScale scale{1 / static_cast<double>(labels.main), setup_.deck.train.z_loss_coefficient};
  executor_->begin_step(step, {&source,
                               scale,
                               scalar(&StepScalars::loss_sum),
                               scalar(&StepScalars::z_sum),
                               mtp_losses(labels),
                               source_sums(),
                               0,
                               {},
                               pair_inputs()});
  const std::int64_t every = setup_.deck.output.norms_every_steps;
  const bool counts = !run_.rounding_counts.empty() && every > 0 && step % every == 0;
  if (counts) fill_zero(stream_, run_.rounding_counts.data, to_size(run_.rounding_counts.size()) * sizeof(double));
  executor_->count_rounding(counts ? RoundingCounts{run_.rounding_counts, run_.norm_partials} : RoundingCounts{});
  const std::vector<Task>& tasks = step_tasks_now();
  std::optional<PhaseTimers::Scope> timer;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    if (task.op == TaskOp::wait_gradients) inject_fault(mesh_.rank(), "gradients");
    if (const auto phase = phase_of(task); i == 0 || phase != phase_of(tasks[i - 1])) {
      timer.reset();
      if (phase) timer.emplace(timers_, *phase);
    }
    const Watch watching = watch(i, task);
    if (task.op == TaskOp::norm) {
      sum_losses();
      if (nan_fault(mesh_.rank(), step)) spoil_gradient();
    }
    run(task);
  }
  executor_->count_rounding({});
}

template <class T>
void Session<T>::begin_checksum() {
  // A checksum is a word, as the buffer's numbers are; sums of norms are taken behind all reductions.
  const auto words = [](auto* data, std::int64_t count) {
    return View<std::uint64_t, 1>(reinterpret_cast<std::uint64_t*>(data), {{count}});
  };
  fill_zero(stream_, run_.checksum.data, sizeof(std::uint64_t));
  sync_->take_checksum(words(run_.checksum.data, 1), words(run_.norm_partials.data, sum_partials));
}

template <class T>
std::uint64_t Session<T>::end_checksum() {
  std::uint64_t sum = 0;
  sync_->take_checksum({}, {});
  copy_to_host(stream_, &sum, run_.checksum.data, sizeof sum);
  stream_.synchronize();
  return sum;
}

template <class T>
StepResult Session<T>::update(Optimizer<T>& optimizer, std::int64_t number, const StepRates& rates,
                              const LabelCounts& labels, bool norms, const HoldsBack& holds_back) {
  const Update now{number, rates, scalars_, norms};
  StepResult result;
  move_history();
  const std::size_t first = step_tasks_now().size();
  optimizer.start();
  for (std::size_t i = 0; i < update_.size(); ++i) {
    const Task& task = update_[i];
    const Watch watching = watch(first + i, task);
    if (run_optimizer(task, optimizer, now)) continue;
    if (task.op == TaskOp::unit_norms && !norms) continue;
    if (task.op == TaskOp::unit_norms)
      add_unit_norms();
    else if (task.op == TaskOp::read)
      result = read_result(labels, holds_back);
    else if (task.op != TaskOp::update_biases)
      executor_->run(task);
    else if (result.updated())
      routers_->update_biases(stream_);
  }
  optimizer.finish();
  if (norms) read_unit_norms(result);
  return result;
}

// What the update reads as not finite leaves everything as it is.
template <class T>
StepResult Session<T>::read_result(const LabelCounts& labels, const HoldsBack& holds_back) {
  StepResult result = read_step(labels);
  timers_.count_ended();
  result.held_back = result.finite && holds_back && holds_back(result);
  if (result.held_back) fill_zero(stream_, &scalars_.data->finite, sizeof(double));
  return result;
}

template <class T>
void Session<T>::update_weights(Optimizer<T>& optimizer, std::int64_t number, const StepRates& rates) {
  optimizer.start();
  for (const Task& task : update_) run_optimizer(task, optimizer, {number, rates, scalars_, false});
  optimizer.finish();
}

template <class T>
bool Session<T>::run_optimizer(const Task& task, Optimizer<T>& optimizer, const Update& update) {
  using Call = void (*)(Optimizer<T>&, Stream&, const Task&, const Update&);
  static constexpr std::pair<TaskOp, Call> runs[] = {
      {TaskOp::update, [](auto& o, auto& s, auto&, auto& now) { o.update_elements(s, now); }},
      {TaskOp::update_factored, [](auto& o, auto& s, auto& t, auto& now) { o.update_factored(s, t.unit, now); }},
      {TaskOp::gather_matrices,
       [](auto& o, auto& s, auto& t, auto& now) { o.matrices().gather(s, t.round, t.buffer, now); }},
      {TaskOp::compute_matrices,
       [](auto& o, auto& s, auto& t, auto& now) { o.matrices().compute(s, t.round, t.buffer, now); }},
      {TaskOp::return_matrices, [](auto& o, auto& s, auto& t, auto&) { o.matrices().give_back(s, t.round, t.buffer); }},
      {TaskOp::update_matrices,
       [](auto& o, auto& s, auto& t, auto& now) { o.matrices().update(s, t.round, t.buffer, now); }},
      {TaskOp::clip_heads, [](auto& o, auto& s, auto&, auto& now) { o.clip_heads(s, now); }}};
  const auto* known = std::ranges::find(runs, task.op, &std::pair<TaskOp, Call>::first);
  if (known == std::end(runs)) return false;
  known->second(optimizer, stream_, task, update);
  return true;
}

template <class T>
std::vector<Task> Session<T>::tasks() const {
  std::vector<Task> all = step_tasks_now();
  all.insert(all.end(), update_.begin(), update_.end());
  return all;
}

template <class T>
std::optional<Timeline::Scope> Session<T>::measured(std::size_t number, const Task& task) {
  if (!timeline_.measures_tasks()) return {};
  timeline_.enter(static_cast<int>(number));
  if (task.track >= 0 || stream_of(task) != "compute") return {};
  return timeline_.measure_task();
}

template <class T>
void Session<T>::run(const Task& task) {
  if (task.op == TaskOp::clear_sums) return clear_sums();
  if (task.op == TaskOp::norm) return add_norm();
  if (task.op == TaskOp::clip) return clip();
  executor_->run(task);
}

template <class T>
void Session<T>::clear_sums() {
  sync_->start_step(stream_, setup_.deck.train.seed, now_);
  fill_zero(stream_, run_.scalars.data, to_size(run_.scalars.size()) * sizeof(double));
  routers_->start_step(stream_);
  clear(run_.amax_history.step);
  if (!run_.peaks.empty()) clear_peaks<acc_t<T>>(stream_, run_.peaks);
  if (!run_.mtp_sums.empty()) fill_zero(stream_, run_.mtp_sums.data, to_size(run_.mtp_sums.size()) * sizeof(double));
}

template <class T>
void Session<T>::clip() {
  if (!run_.mtp_sums.empty()) mesh_.scalars().all_reduce(stream_, run_.mtp_sums);
  routers_->reduce(stream_, mesh_.scalars());
  if (!run_.peaks.empty()) mesh_.scalars().all_reduce_max(stream_, run_.peaks);
  mesh_.scalars().all_reduce(stream_, summed_to(3));
  finish_sums();
}

template <class T>
void Session<T>::put_averages() {
  for (std::size_t u = 0; u < storage_->size(); ++u) {
    const RankUnit<T>& s = storage_->unit(u);
    if (!s.averages()) continue;
    const View<const acc_t<T>, 1> lead(static_cast<const acc_t<T>*>(s.optimizer[1].data), {{s.master.size()}});
    schedule_free_averages<acc_t<T>>(stream_, setup_.deck.optimizer, s.master, lead, s.gradient);
  }
}

// Master weights against what stands where the gradients were.
template <class T>
void Session<T>::exchange_weights() {
  bool any = false;
  for (std::size_t u = 0; u < storage_->size(); ++u) {
    const RankUnit<T>& s = storage_->unit(u);
    if (!s.averages()) continue;
    any = true;
    forge::exchange_weights<acc_t<T>>(stream_, s.master, s.gradient);
    s.convert_master(stream_);
  }
  if (any) parameters_changed();
}

template <class T>
void Session<T>::begin_evaluation() {
  use_averages();
  if (setup_.deck.train.zero_stage == 3)
    for (const Task& task : gathers_) executor_->run(task);
  fill_zero(stream_, run_.scalars.data, to_size(run_.scalars.size()) * sizeof(double));
}

template <class T>
void Session<T>::evaluate_microbatch(BatchSource& source, int microbatch, const RowScores& scores) {
  executor_->begin_evaluation({&source,
                               {},
                               scalar(&StepScalars::loss_sum),
                               scalar(&StepScalars::z_sum),
                               {},
                               {},
                               microbatch,
                               scores,
                               pair_inputs()});
  for (const Task& task : evaluation_) executor_->run(task);
}

template <class T>
typename Session<T>::EvaluatedSums Session<T>::evaluated_sums() {
  executor_->finish();
  sum_losses();
  const std::int64_t before = setup_.buffers.sources;  // which evaluations don't tell apart
  const View<double, 1> summed = summed_to(2).slice(before, summed_to(2).size());
  mesh_.scalars().all_reduce(stream_, summed);
  use_trained();
  std::array<double, 4> sums{};  // of pairs, the loss, z
  copy_to_host(stream_, sums.data(), summed.data, to_size(summed.size()) * sizeof(double));
  stream_.synchronize();
  return setup_.buffers.pairs ? EvaluatedSums{sums[2], sums[0], sums[1]} : EvaluatedSums{sums[0]};
}

FORGE_INSTANTIATE_CLASS(Session);

}  // namespace forge
