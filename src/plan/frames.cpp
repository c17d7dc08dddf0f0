#include "plan/frames.hpp"

#include <algorithm>

#include "nn/run.plan.hpp"
#include "plan/slots.hpp"
#include "plan/task_segments.hpp"

namespace forge {

std::size_t Frames::run(const Task& t) {
  if (t.op == TaskOp::begin_pair) most_of_tracks_ = {};
  Stack& stack = t.track < 0 ? run_ : tracks_[to_size(t.track)];
  std::size_t& open = stack.open[to_size(t.frame)];
  if (t.op == TaskOp::open) stack.now += open = frame_bytes(c_, share_, t);
  if (t.op == TaskOp::close) stack.now -= open;
  std::size_t used = stack.now + own_bytes(t).value_or(0);
  if (t.track >= 0) {
    std::size_t& of_track = most_of_tracks_[to_size(t.track)];
    of_track = std::max(of_track, used);
    return run_.now + tracks_[0].now + tracks_[1].now - stack.now + used;
  }
  if (t.op == TaskOp::end_pair) used += most_of_tracks_[0] + most_of_tracks_[1];
  if (used > most && (own_bytes(t) || t.op == TaskOp::end_pair)) {
    most = used;
    task = t;
  }
  return used;
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
