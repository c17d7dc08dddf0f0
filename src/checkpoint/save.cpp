#include "checkpoint/save.hpp"

#include <cstring>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/directory.hpp"
#include "config/file_handle.hpp"
#include "core/faults.hpp"
#include "device/memory.hpp"

namespace forge {

namespace {

// Runs f on this rank; then all ranks throw what the first rank that failed says.
template <class F>
void together(Communicator& ranks, F f) {
  std::string problem;
  try {
    f();
  } catch (const std::exception& error) {
    problem = error.what();
    if (problem.empty()) problem = "failed";
  }
  // The texts go around only where there is one.
  std::int64_t failed = problem.empty() ? 0 : 1;
  ranks.max_host({&failed, 1});
  if (failed == 0) return;
  const auto problems = ranks.gather_host(problem);
  for (std::size_t r = 0; r < problems.size(); ++r)
    if (!problems[r].empty()) throw IoFailed("checkpoint: " + problems[r] + " (rank " + std::to_string(r) + ")");
}

void write_hash(const std::string& directory) {
  const Hash hash = hash_of_file(directory + "/" + manifest_name);
  const std::string text = hex_of(hash) + "  " + manifest_name + "\n";
  FileHandle file = FileHandle::open_to_write(directory + "/." + manifest_hash_name);
  file.write_at(0, text.data(), text.size());
  file.commit_as(directory + "/" + manifest_hash_name);
}

}  // namespace

void save_checkpoint(Communicator& ranks, const SavePlan& plan, const CheckpointFacts& facts,
                     const std::vector<StateTensor>& tensors, const CopyToHost& copy) {
  const bool first = ranks.rank() == 0;
  const SaveFaults faults(ranks.rank(), facts.step);
  try {
    std::string partial;
    together(ranks, [&] {
      if (first) partial = start_step(plan.directory, facts.step);
    });
    ranks.broadcast_host(partial, 0);
    // The manifest has a row for each chunk: not more of them than a rank can hold, however large the model.
    constexpr std::size_t most_chunks = std::size_t{1} << 24;
    ShardOptions shards = plan.shards;
    shards.least_bytes =
        std::max(shards.least_bytes, bytes_of(tensors) * static_cast<std::size_t>(ranks.size()) / most_chunks);
    std::string index;
    together(ranks, [&] {
      const ShardIndex written = write_shard(partial, ranks.rank(), tensors, copy, shards);
      if (written.shard.bytes > 0)
        faults.shard_written(partial + "/" + shard_name(written.shard.number),
                             written.datasets.front().chunks.front().offset);
      index = to_text(written);
    });
    ManifestBuilder builder(facts);
    together(ranks, [&] {
      ranks.collect_host(index, 0, [&](const std::string& text) {
        builder.add(shard_index_from(text));
        if (shards.heartbeat) shards.heartbeat->beat();
      });
      if (!first) return;
      write_manifest(partial + "/" + manifest_name, builder.take(), shards.heartbeat);
      write_hash(partial);
      commit_step(plan.directory, facts.step);
      prune_steps(plan.directory, plan.keep_last, plan.keep_every);
    });
  } catch (const IoFailed&) {
    if (first) abandon_step(plan.directory, facts.step);
    throw;
  }
}

void WritingPace::start(bool rests) {
  const auto now = Clock::now();
  // Done before the next save is due, if that comes after as long a time as this one.
  until_ = rests ? now + (now - started_) * 3 / 4 : now;
  started_ = worked_from_ = now;
  const std::lock_guard lock(mutex_);
  hurried_ = false;
}

void WritingPace::hurry() {
  const std::lock_guard lock(mutex_);
  hurried_ = true;
  changed_.notify_all();
}

void WritingPace::rest() {
  constexpr int rest_of_work = 24;  // 4 % of a core's time
  const auto now = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, std::min(until_, now + rest_of_work * (now - worked_from_)), [&] { return hurried_; });
  worked_from_ = Clock::now();
}

CheckpointSaver::CheckpointSaver(Communicator& ranks, SavePlan plan, bool asynchronous)
    : ranks_(ranks.duplicate()), plan_(std::move(plan)), asynchronous_(asynchronous) {}

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

void CheckpointSaver::save(const CheckpointFacts& facts, const std::vector<StateTensor>& tensors, Stream& stream) {
  finish();
  if (!asynchronous_) {
    save_checkpoint(*ranks_, plan_, facts, tensors, [&](void* to, const void* from, std::size_t bytes) {
      copy_to_host(stream, to, from, bytes);
      stream.synchronize();
    });
    committed_ = facts.step;
    return;
  }
  under_way_ = facts.step;
  auto copies = copied_to_host(tensors, stream, memory_);
  pace_.start(plan_.rests);
  writing_ = std::async(std::launch::async, [this, facts, copies = std::move(copies)] {
    try {
      save_checkpoint(*ranks_, plan_, facts, copies, [this](void* to, const void* from, std::size_t bytes) {
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
