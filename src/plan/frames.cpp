#include "plan/frames.hpp"

#include "nn/run.plan.hpp"
#include "plan/slots.hpp"
#include "plan/task_segments.hpp"

namespace forge {

std::size_t Frames::run(const Task& t) {
  if (t.op == TaskOp::open) now_ += open_[to_size(t.frame)] = frame_bytes(c_, share_, t);
  if (t.op == TaskOp::close) now_ -= open_[to_size(t.frame)];
  const std::optional<std::size_t> own = own_bytes(t);
  if (!own) return now_;
  if (now_ + *own > most) {
    most = now_ + *own;
    task = t;
  }
  return now_ + *own;
}

std::optional<std::size_t> Frames::own_bytes(const Task& t) {
  if (const LayerPass p = pass_of(t, share_); p.layer)
    return scratch_.of(p, [&] { return scratch_bytes(c_, *p.layer, p.pass, p.recompute); });
  if (t.op == TaskOp::compute_matrices)
    return with_compute_type(
        c_.precision, [&](auto type) { return counted_bytes<MatrixBuffers<decltype(type)>>(c_, share_.matrices); });
  if (t.op == TaskOp::update_factored) return counted_bytes<FactoredBuffers>(c_, share_.factored.units[t.unit]);
  return std::nullopt;
}

}  // namespace forge
