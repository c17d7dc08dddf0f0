#include "data/loader.hpp"

#include "core/error.hpp"

namespace forge {

Loader::Loader(SampleStream stream, BatchShare share, std::int64_t first_step, std::int64_t last_step,
               const RowShare& rows)
    : stream_(std::move(stream)),
      share_(share),
      last_step_(last_step),
      filler_(stream_.set().sequence_tokens(), stream_.set().options().vocabulary, stream_.apart()),
      filled_(first_step - 1),
      taken_(first_step - 1) {
  require(first_step >= 1, "loader: steps count from 1");
  for (const DataSource& source : stream_.sources())
    require(source.sequence.count == source.set->samples(), "loader: the sequence belongs to another set");
  for (HostBatch& batch : buffers_)
    batch.allocate(share.most_microbatches(), share.microbatch, stream_.set().sequence_tokens(), rows);
  thread_ = std::thread([this] { fill_ahead(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Loader::fill_ahead() {
  std::unique_lock lock(mutex_);
  while (filled_ < last_step_) {
    // Two steps are held: the one handed out and the one behind it.
    changed_.wait(lock, [this] { return stop_ || filled_ <= taken_; });
    if (stop_) return;
    const std::int64_t step = filled_ + 1;
    lock.unlock();
    std::exception_ptr failure;
    try {
      fill(step);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    if (!failure) filled_ = step;
    changed_.notify_all();
    if (failure) return;
  }
}

void Loader::fill(std::int64_t step) {
  HostBatch& batch = buffer(step);
  // Of the buffer's memory another part.
  if (const std::int64_t microbatches = share_.microbatches(step); microbatches != batch.microbatches())
    batch.allocate(microbatches, share_.microbatch, batch.sequence_tokens, RowShare(batch.share));
  filler_.begin(batch);
  for (std::int64_t row = 0; row < batch.sequences; ++row) {
    const std::int64_t taken = share_.place(step, row), place = stream_.place(taken);
    const SampleStream::Place found = stream_.at(place);
    filler_.fill_sequence(batch, row, stream_.set(found.source), found.sample, taken, found.source,
                          stream_.pieces(place));
  }
  filler_.finish(batch);
}

const HostBatch& Loader::next() {
  std::unique_lock lock(mutex_);
  require(taken_ < last_step_, "loader: no step is left");
  changed_.wait(lock, [this] { return failure_ || filled_ > taken_; });
  if (filled_ == taken_) std::rethrow_exception(failure_);
  ++taken_;
  changed_.notify_all();
  return buffer(taken_);
}

}  // namespace forge
