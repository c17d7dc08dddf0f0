#include "parallel/executor.hpp"

namespace forge {

template <class T>
Executor<T>::Executor(const LayerServices<T>& services, const ParameterStorage<T>& storage, ParameterGather<T>& gather,
                      GradientSync<T>* sync, const PipelinePart& part, VocabularyPart vocabulary, Mesh& mesh)
    : services_(services),
      storage_(storage),
      gather_(gather),
      sync_(sync),
      share_(part.share),
      vocabulary_(vocabulary),
      slots_(services.arena, services.buffers, part.share, part.slots, sync != nullptr),
      transfers_(mesh.pipeline()) {}

template <class T>
void Executor<T>::run(const Task& task) {
  Stream& stream = services_.stream;
  switch (task.op) {
    case TaskOp::load_batch:
      return load_batch(task);
    case TaskOp::retire:
      return;  // slots are assigned for the whole run
    case TaskOp::forward:
    case TaskOp::recompute:
    case TaskOp::backward_input:
    case TaskOp::backward_weight:
      return run_layer(task);
    case TaskOp::open:
      frames_[to_size(task.frame)].emplace(services_.arena, frame_bytes(services_.buffers, share_, task));
      return;
    case TaskOp::close:
      return frames_[to_size(task.frame)].reset();
    case TaskOp::gather:
      return gather_.gather(stream, task.unit, task.place);
    case TaskOp::weight_amaxes:
      return gather_.take_amaxes(stream);
    case TaskOp::wait_parameters:
      return gather_.wait(stream, task.unit, task.place);
    case TaskOp::release:
      return gather_.release(task.unit);
    case TaskOp::clear_gradients:
      return sync_->clear(stream, task.unit, task.place);
    case TaskOp::reduce_gradients:
      return sync_->reduce(stream, task.unit, task.place, task.last);
    case TaskOp::reduce_tied:
      return sync_->reduce_tied(task.unit);
    case TaskOp::wait_gradients:
      sync_->finish(stream);
      return finish();
    case TaskOp::transfer:
      return transfer(task);
    case TaskOp::local_copy:
      return local_copy(task);
    default:
      throw Error("the executor has no such task: " + std::string(name_of(task.op)));
  }
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
               edge(only_of(task.writes), task.place, m));
}

FORGE_INSTANTIATE_CLASS(Executor);

}  // namespace forge
