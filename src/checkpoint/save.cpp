#include "checkpoint/save.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/together.hpp"
#include "config/file_handle.hpp"
#include "config/output_file.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/file_errors.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"

namespace forge {

namespace {

void write_hash(const std::string& directory) {
  const Hash hash = hash_of_file(directory + "/" + manifest_name);
  const std::string text = hex_of(hash) + "  " + manifest_name + "\n";
  FileHandle file = FileHandle::open_to_write(directory + "/." + manifest_hash_name);
  file.write_at(0, text.data(), text.size());
  file.commit_as(directory + "/" + manifest_hash_name);
}

// What the save needs on the disk, of all ranks, and what is free there before it, as the first rank sees it; −1:
// unknown.
struct Space {
  std::int64_t needed = 0, free = -1;
};

Space space_of(Communicator& ranks, const SavePlan& plan, const std::vector<StateTensor>& tensors) {
  const std::int64_t free = ranks.rank() == 0 ? free_bytes_at(plan.directory) : 0;
  std::array<std::int64_t, 2> sums{static_cast<std::int64_t>(bytes_of(tensors)), free};
  ranks.sum_host(sums);
  return {sums[0], sums[1]};
}

// f(); a disk that is full is told with figures.
template <class F>
void with_figures(const SavePlan& plan, const Space& space, F f) {
  try {
    f();
  } catch (const NoSpace& error) {
    if (space.free < 0) throw;
    throw NoSpace("disk full: the checkpoint needs " + format_bytes(to_size(space.needed)) + ", " + plan.directory +
                  " had " + format_bytes(to_size(space.free)) + " free: " + error.what());
  }
}

// All ranks: each writes its shard and forces it to the disk; when all have said so, the first one writes the manifest
// and gives the directory its name. Of a manifest in pieces, the pieces come in between. Returns what this rank wrote.
// Throws the same IoFailed on every rank where any of it failed: the steps saved before are as they were. `nonce`: of
// the first rank. `notes`: for its log.
WrittenStep write_step(Communicator& ranks, const SavePlan& plan, ManifestWriter& manifests, const std::string& nonce,
                       const CheckpointFacts& facts, const std::vector<StateTensor>& tensors, const CopyToHost& copy,
                       const SaveFaults& faults, std::vector<std::string>& notes) {
  const bool first = ranks.rank() == 0;
  const Space space = space_of(ranks, plan, tensors);
  const auto in_step = [&](auto f) { together(ranks, [&] { with_figures(plan, space, f); }); };
  bool made_anew = false;
  try {
    std::string partial;
    in_step([&] {
      if (!first) return;
      if (plan.lock) made_anew = plan.lock->keep();
      partial = start_step(plan.directory, facts.step, nonce);
    });
    ranks.broadcast_host(partial, 0);
    const ShardOptions shards = few_chunks(plan.shards, bytes_of(tensors) * to_size(ranks.size()));
    WrittenStep written;
    std::string index;
    in_step([&] {
      written.shard = write_shard(partial, ranks.rank(), tensors, copy, shards);
      if (written.shard.shard.bytes > 0)
        faults.shard_written(partial + "/" + shard_name(written.shard.shard.number),
                             written.shard.datasets.front().chunks.front().offset);
      index = to_text(written.shard);
    });
    if (manifests.in_pieces())
      in_step([&] { written.piece = manifests.write_piece(partial, index, shards.heartbeat); });
    in_step([&] {
      manifests.write_manifest(partial, facts, index, shards.heartbeat);
      if (!first) return;
      write_hash(partial);
      if (plan.lock) plan.lock->check();
      if (plan.before_commit) plan.before_commit();
      if (const std::string note = commit_step(plan.directory, facts.step, nonce); !note.empty()) notes.push_back(note);
      if (made_anew)
        throw IoFailed("checkpoint.directory " + plan.directory + " was removed or replaced while the job ran; " +
                       step_name(facts.step) + " is saved in one that was made anew");
    });
    return written;
  } catch (const IoFailed&) {
    if (first) abandon_step(plan.directory, facts.step, nonce);
    throw;
  }
}

// While a save is not committed.
struct Writing {
  explicit Writing(std::atomic<bool>& flag) : writes(flag) { writes = true; }
  ~Writing() { writes = false; }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  std::atomic<bool>& writes;
};

}  // namespace

void WritingPace::start(bool rests) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  // Done before the next save is due, if that comes after as long a time as this one.
  until_ = rests ? now + (now - started_) * 3 / 4 : now;
  started_ = worked_from_ = now;
  rested_ = {};
  hurried_ = false;
}

void WritingPace::hurry() {
  const std::lock_guard lock(mutex_);
  hurried_ = true;
  changed_.notify_all();
}

void WritingPace::rest() {
  constexpr int rest_of_work = 24;  // 4 % of a core's time
  std::unique_lock lock(mutex_);
  const auto now = Clock::now();
  changed_.wait_until(lock, std::min(until_, now + rest_of_work * (now - worked_from_)), [&] { return hurried_; });
  worked_from_ = Clock::now();
  rested_ += worked_from_ - now;
}

double WritingPace::seconds_of_work() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::duration<double>(Clock::now() - started_ - rested_).count();
}

CheckpointSaver::CheckpointSaver(Communicator& ranks, SavePlan plan, bool asynchronous)
    : ranks_(ranks.duplicate()),
      plan_(std::move(plan)),
      manifests_(*ranks_, plan_.shards_of_piece),
      asynchronous_(asynchronous),
      nonce_(plan_.lock ? plan_.lock->nonce() : draw_nonce()),
      pruner_(plan_, nonce_) {}

CheckpointSaver::~CheckpointSaver() {
  pace_.hurry();
  if (writing_.valid()) writing_.wait();
}

void CheckpointSaver::finish() {
  if (!writing_.valid()) return;
  pace_.hurry();
  writing_.get();
  committed_ = under_way_;
}

std::vector<std::string> CheckpointSaver::take_notes() {
  if (writing_.valid()) return {};
  std::vector<std::string> notes = std::exchange(notes_, {});
  for (std::string& note : pruner_.take_notes()) notes.push_back(std::move(note));
  return notes;
}

double CheckpointSaver::longest_seconds() const {
  const std::lock_guard lock(mutex_);
  return std::max(seconds_.longest(), writes_ ? pace_.seconds_of_work() : 0);
}

void CheckpointSaver::write(const CheckpointFacts& facts, const std::vector<StateTensor>& tensors,
                            const CopyToHost& copy) {
  const SaveFaults faults(ranks_->rank(), facts.step);
  WrittenStep written;
  {
    const Writing now(writes_);
    written = write_step(*ranks_, plan_, manifests_, nonce_, facts, tensors, copy, faults, notes_);
    const std::lock_guard lock(mutex_);
    seconds_.add(pace_.seconds_of_work());
  }
  pruner_.prune(*ranks_, facts.step, written, [this] {
    if (leaves_) throw PruningStops();
    pace_.rest();
  });
}

void CheckpointSaver::save(const CheckpointFacts& facts, const std::vector<StateTensor>& tensors, Stream& stream) {
  finish();
  pace_.start(asynchronous_ && plan_.rests);
  if (!asynchronous_) {
    write(facts, tensors, [&](void* to, const void* from, std::size_t bytes) {
      copy_to_host(stream, to, from, bytes);
      stream.synchronize();
    });
    committed_ = facts.step;
    return;
  }
  under_way_ = facts.step;
  writing_ = std::async(std::launch::async, [this, facts, copies = copied_to_host(tensors, stream, memory_)] {
    try {
      write(facts, copies, [this](void* to, const void* from, std::size_t bytes) {
        pace_.rest();
        std::memcpy(to, from, bytes);
      });
    } catch (...) {
      if (plan_.failed_behind) plan_.failed_behind();
      throw;
    }
  });
}

}  // namespace forge
