#include "parallel/transfers.hpp"

namespace forge {

Transfers::Transfers(Communicator& pipeline) : pipeline_(pipeline) {
  if (pipeline.size() > 1) stream_.open();
}

Transfers::Key Transfers::key_of(const Action& action) {
  return {is_send(action.op), is_forward_transfer(action.op), action.chunk, action.microbatch};
}

void Transfers::begin_group() {
  grouping_ = true;
  pipeline_.group_begin();
}

void Transfers::end_group() {
  grouping_ = false;
  pipeline_.group_end(*stream_);
  for (const Key& key : group_) events_[key].record(*stream_);
  group_.clear();
}

void Transfers::posted(const Key& key) {
  if (grouping_)
    group_.push_back(key);
  else
    events_[key].record(*stream_);
}

void Transfers::post_send(Stream& compute, const Action& action, const void* data, std::int64_t count, DType type) {
  stream_.follow(compute);
  pipeline_.send(*stream_, data, count, type, action.peer);
  posted(key_of(action));
}

void Transfers::post_receive(Stream& compute, const Action& action, void* data, std::int64_t count, DType type) {
  stream_.follow(compute);
  pipeline_.receive(*stream_, data, count, type, action.peer);
  posted(key_of(action));
}

void Transfers::wait(Stream& compute, const Action& action) {
  events_[key_of(action)].wait(compute);
}

void Transfers::finish() {
  stream_.rethrow();
}

}  // namespace forge
