#include "parallel/transfers.hpp"

namespace forge {

Transfers::Transfers(Communicator& pipeline) : pipeline_(pipeline) {
  if (pipeline.size() > 1) stream_.open();
}

Transfers::Key Transfers::key_of(const Action& action) {
  return {is_send(action.op), is_forward_transfer(action.op), action.chunk, action.microbatch};
}

void Transfers::run(Stream& compute, const Action& action, void* data, std::int64_t count, DType type) {
  if (action.op == Op::begin_group) {
    grouping_ = true;
    return pipeline_.group_begin();
  }
  if (action.op == Op::end_group) return end_group();
  if (!is_post(action.op)) return pipeline_.wait(compute, events_[key_of(action)]);
  post(compute, action, data, count, type);
}

void Transfers::end_group() {
  grouping_ = false;
  pipeline_.group_end(*stream_);
  for (const Key& key : group_) events_[key].record(*stream_);
  group_.clear();
}

void Transfers::post(Stream& compute, const Action& action, void* data, std::int64_t count, DType type) {
  stream_.follow(compute);
  if (is_send_post(action.op))
    pipeline_.send(*stream_, data, count, type, action.peer);
  else
    pipeline_.receive(*stream_, data, count, type, action.peer);
  if (grouping_)
    group_.push_back(key_of(action));
  else
    events_[key_of(action)].record(*stream_);
}

void Transfers::finish() {
  stream_.rethrow();
}

}  // namespace forge
