#include "parallel/executor.hpp"

#include <algorithm>
#include <utility>

#include "plan/frames.hpp"

namespace forge {

namespace {

// Of a pair's forward and backward pass.
std::pair<int, int> chunks_of(const std::vector<Task>& pair) {
  return {pair.front().action.chunk, pair.back().action.chunk};
}

BufferContext recomputing_all(BufferContext run) {
  run.recompute = Recompute::full;
  return run;
}

}  // namespace

template <class T>
Executor<T>::Executor(const LayerServices<T>& services, const ParameterStorage<T>& storage, ParameterGather<T>& gather,
                      GradientSync<T>* sync, const PipelinePart& part, VocabularyPart vocabulary, Mesh& mesh)
    : services_(services),
      in_full_(recomputing_all(services.buffers)),
      storage_(storage),
      gather_(gather),
      sync_(sync),
      share_(part.share),
      vocabulary_(vocabulary),
      slots_(services.arena, services.buffers, part.share, part.slots, sync != nullptr),
      transfers_(mesh.pipeline()) {}

template <class T>
void Executor<T>::begin_pair() {
  if (pair_) return pair_->tasks.clear();
  require(services_.groups.stream, "pairs of passes need a stream of exchanges");
  pair_.emplace(services_.stream, services_.groups);
}

template <class T>
void Executor<T>::run(const Task& task) {
  if (task.op == TaskOp::begin_pair)
    begin_pair();
  else if (task.track >= 0)
    pair_->tasks.push_back(task);
  else if (task.op == TaskOp::end_pair)
    run_pair();
  else
    run_now(task);
}

template <class T>
void Executor<T>::run_pair() {
  Pair& pair = *pair_;
  const auto [bytes, is_new] = pair.bytes.try_emplace(chunks_of(pair.tasks));
  if (is_new) {
    Frames frames(services_.buffers, share_);
    for (const Task& task : pair.tasks) frames.run(task);
    bytes->second = frames.most_of_tracks();
  }
  const Frame frame(services_.arena);
  for (std::size_t track : {0, 1}) pair.stacks[track].borrow(services_.arena, bytes->second[track]);
  const NotedRows noted(step_.operations);
  const auto run_track = [&](int track) {
    for (const Task& task : pair.tasks) {
      if (task.track != track) continue;
      const NotedRows of_layers(  // whose rows are noted: no other task gives turns
          pass_of(task, share_).layer ? step_.operations : nullptr);
      run_now(task);
    }
  };
  pair.tracks.run([&] { run_track(0); }, [&] { run_track(1); },
                  [&](int track) {
                    if (step_.operations) step_.operations->turn(track);
                  });
}

template <class T>
void Executor<T>::run_now(const Task& task) {
  using Call = void (*)(Executor&, Stream&, const Task&);
  constexpr Call of_layer = [](auto& e, auto&, auto& t) { e.run_layer(t); };
  static constexpr std::pair<TaskOp, Call> runs[] = {
      {TaskOp::load_batch, [](auto& e, auto&, auto& t) { e.load_batch(t); }},
      {TaskOp::retire, [](auto&, auto&, auto&) {}},  // slots are assigned for the whole run
      {TaskOp::forward, of_layer},
      {TaskOp::recompute, of_layer},
      {TaskOp::backward_input, of_layer},
      {TaskOp::backward_weight, of_layer},
      {TaskOp::backward, of_layer},
      {TaskOp::open,
       [](auto& e, auto&, auto& t) {
         const BufferContext& buffers = t.layer < 0 ? e.services_.buffers : e.buffers_of(layer_of(t, e.share_));
         e.frames_of(t)[to_size(t.frame)].emplace(e.stack_of(t), frame_bytes(buffers, e.share_, t));
       }},
      {TaskOp::close, [](auto& e, auto&, auto& t) { e.frames_of(t)[to_size(t.frame)].reset(); }},
      {TaskOp::gather, [](auto& e, auto& s, auto& t) { e.gather_.gather(s, t.unit, t.buffer); }},
      {TaskOp::weight_amaxes, [](auto& e, auto& s, auto&) { e.gather_.take_amaxes(s); }},
      {TaskOp::wait_parameters, [](auto& e, auto& s, auto& t) { e.gather_.wait(s, t.unit, t.buffer); }},
      {TaskOp::release, [](auto& e, auto&, auto& t) { e.gather_.release(t.unit, t.buffer); }},
      {TaskOp::clear_gradients, [](auto& e, auto& s, auto& t) { e.sync_->clear(s, t.unit, t.buffer); }},
      {TaskOp::reduce_gradients, [](auto& e, auto& s, auto& t) { e.sync_->reduce(s, t.unit, t.buffer, t.last); }},
      {TaskOp::reduce_tied, [](auto& e, auto&, auto& t) { e.sync_->reduce_tied(t.unit); }},
      {TaskOp::wait_gradients, [](auto& e, auto& s, auto&) { e.sync_->finish(s), e.finish(); }},
      {TaskOp::transfer, [](auto& e, auto&, auto& t) { e.transfer(t); }},
      {TaskOp::local_copy, [](auto& e, auto&, auto& t) { e.local_copy(t); }}};
  const auto* known = std::ranges::find(runs, task.op, &std::pair<TaskOp, Call>::first);
  if (known == std::end(runs)) throw Error("the executor has no such task: " + std::string(name_of(task.op)));
  known->second(*this, services_.stream, task);
}

// The model's own rows, and those of the depths whose layers or losses are here.
template <class T>
void Executor<T>::load_batch(const Task& task) {
  const int chunk = task.action.chunk, m = task.action.microbatch, row = inputs_.first_microbatch + m;
  inputs_.source->load(services_.stream, row, slots_.batch(chunk, m, 0));
  int loaded = 0;
  for (const StageLayer& layer : share_.layers[to_size(chunk)]) {
    if (!step_.training || layer.state <= loaded) continue;
    loaded = layer.state;
    inputs_.source->load_shifted(services_.stream, row, loaded, slots_.batch(chunk, m, loaded));
  }
}

template <class T>
void Executor<T>::transfer(const Task& task) {
  const Action& action = task.action;
  if (!is_post(action.op)) return transfers_.run(services_.stream, action);
  const View<T, 2> data = edge(only_of(task.reads | task.writes), action.chunk, action.microbatch);
  transfers_.run(services_.stream, action, data.data, data.size(), dtype_of<T>);
}

template <class T>
void Executor<T>::local_copy(const Task& task) {
  const int m = task.action.microbatch;
  copy_rows<T>(services_.stream, edge(only_of(task.reads), task.action.chunk, m),
               edge(only_of(task.writes), task.buffer, m));
}

FORGE_INSTANTIATE_CLASS(Executor);

}  // namespace forge
