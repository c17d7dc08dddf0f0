#include "core/to_size.hpp"
#include "plan/tasks.hpp"

// Words for a task: its name, its stream, and the phase of a step that it stands for.

namespace forge {

namespace {

struct TaskRow {
  std::string_view name, stream;
};
// In the order of TaskOp.
constexpr TaskRow task_rows[] = {{"load_batch", "compute"},
                                 {"retire", ""},
                                 {"forward", "compute"},
                                 {"recompute", "compute"},
                                 {"backward_input", "compute"},
                                 {"backward_weight", "compute"},
                                 {"backward", "compute"},
                                 {"open", ""},
                                 {"close", ""},
                                 {"begin_pair", ""},
                                 {"end_pair", "compute"},
                                 {"gather", "parameters"},
                                 {"wait_parameters", "compute"},
                                 {"release", ""},
                                 {"clear_gradients", "compute"},
                                 {"reduce_gradients", "gradients"},
                                 {"transfer", "transfers"},
                                 {"local_copy", "compute"},
                                 {"clear_sums", "compute"},
                                 {"reduce_tied", "gradients"},
                                 {"wait_gradients", "compute"},
                                 {"norm", "compute"},
                                 {"clip", "compute"},
                                 {"update", "compute"},
                                 {"read", ""},
                                 {"update_biases", "compute"},
                                 {"gather_matrices", "matrices"},
                                 {"compute_matrices", "compute"},
                                 {"return_matrices", "matrices"},
                                 {"update_matrices", "compute"},
                                 {"update_factored", "compute"},
                                 {"clip_heads", "compute"},
                                 {"unit_norms", "compute"},
                                 {"weight_amaxes", "compute"}};

}  // namespace

std::string_view name_of(TaskOp op) {
  return task_rows[to_size(op)].name;
}

std::string_view stream_of(const Task& task) {
  const bool waits = task.op == TaskOp::transfer && !is_post(task.action.op) && !is_group(task.action.op);
  return waits ? "compute" : task_rows[to_size(task.op)].stream;
}

std::string subject_of(const Task& task, const RankShare& share, const ModelSpec& whole) {
  if (task.unit != no_unit) return std::string(name_of(share.units[task.unit].kind));
  if (task.layer < 0) return "";
  const StageLayer& layer = layer_of(task, share);
  const bool experts = layer.kind == LayerKind::block && whole.is_moe(layer.number);
  return std::string(name_of(layer.kind)) + (experts ? " with experts" : "");
}

std::string phase_of(const Task& task, const RankShare& share) {
  if (task.op == TaskOp::end_pair) return "a pair of passes";
  if (task.layer < 0) return std::string(name_of(task.op));
  const StageLayer& layer = layer_of(task, share);
  if (layer.kind == LayerKind::head) return "output head";
  std::string what = "the " + std::string(name_of(layer.kind));
  if (layer.kind == LayerKind::block) what = layer.state > 0 ? "a multi-token block" : "a block";
  if (layer.kind == LayerKind::norm) what = layer.state > 0 ? "a multi-token norm" : "the final norm";
  if (layer.kind == LayerKind::mtp_input) what = "a multi-token input";
  return (task.op == TaskOp::forward ? "forward of " : "backward of ") + what;
}

}  // namespace forge
