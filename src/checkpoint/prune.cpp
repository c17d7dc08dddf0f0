#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/disk_reader.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/shard_check.hpp"
#include "checkpoint/together.hpp"
#include "config/text.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

// Another text once a file has been written, cut, removed or added.
std::string state_of_files(const std::string& directory) {
  std::vector<std::string> lines;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(directory, gone)) {
    struct stat s {};
    ::stat(entry.path().c_str(), &s);
    lines.push_back(entry.path().filename().string() + " " + std::to_string(s.st_size) + " " +
                    std::to_string(s.st_mtim.tv_sec) + "." + std::to_string(s.st_mtim.tv_nsec) + " " +
                    std::to_string(s.st_ctim.tv_sec) + "." + std::to_string(s.st_ctim.tv_nsec));
  }
  std::sort(lines.begin(), lines.end());
  return joined(lines, "\n");
}

// What any rank has found, the same on all ranks.
struct Verdict {
  bool stopped = false;
  std::string damage;
};

// `look` gives what this rank finds wrong.
template <class F>
Verdict agreed(Communicator& ranks, F look) {
  std::vector<std::string> findings;
  std::int64_t stopped = 0;
  try {
    findings = look();
  } catch (const PruningStops&) {
    stopped = 1;
  } catch (const std::exception& error) {
    findings = {error.what()};
  }
  ranks.max_host({&stopped, 1});
  const auto first = ranks.first_text(findings.empty() ? "" : findings.front());
  if (first.rank < 0) return {stopped != 0, ""};
  return {stopped != 0, first.text + " (rank " + std::to_string(first.rank) + ")"};
}

bool stops(const std::function<void()>& between) {
  try {
    between();
    return false;
  } catch (const PruningStops&) {
    return true;
  }
}

std::vector<std::string> manifest_damage(const std::string& directory) {
  try {
    verified_manifest(directory, hash_on_disk);
    return {};
  } catch (const BadCheckpoint& error) {
    return {error.what()};
  }
}

std::vector<std::string> piece_damage(const std::string& directory, const ManifestWriter::File& piece) {
  const std::string path = directory + "/" + piece.name;
  if (as_damage([&] { return hash_on_disk(path); }) == piece.hash) return {};
  return {path + " has another SHA-256 than when it was written"};
}

}  // namespace

void Pruner::prune(Communicator& ranks, std::int64_t step, const WrittenStep& written,
                   const std::function<void()>& between) {
  std::int64_t due = 0;
  together(ranks, [&] {
    if (ranks.rank() != 0 || plan_.keep_last == 0 || stops(between)) return;
    const auto steps = committed_steps(plan_.directory);
    const auto kept = static_cast<std::ptrdiff_t>(std::min(steps.size(), to_size(plan_.keep_last)));
    due = std::any_of(steps.begin() + kept, steps.end(), [&](const StepDirectory& s) { return may_go(s.step); });
  });
  ranks.max_host({&due, 1});
  if (due != 0 && read_back(ranks, step, written, between)) remove_older(ranks, between);
}

// False: it was stopped.
bool Pruner::read_back(Communicator& ranks, std::int64_t step, const WrittenStep& written,
                       const std::function<void()>& between) {
  const std::string path = plan_.directory + "/" + step_name(step);
  const std::string files = ranks.rank() == 0 ? state_of_files(path) : "";
  std::vector<const StoredDataset*> datasets;
  const ShardIndex& own = written.shard;
  for (const StoredDataset& dataset : own.datasets) datasets.push_back(&dataset);
  const Verdict verdict = agreed(ranks, [&] {
    std::vector<std::string> findings;
    if (own.shard.bytes > 0)
      findings = shard_damage(path + "/" + shard_name(own.shard.number), own.shard, own.tensors, datasets, between);
    if (findings.empty() && !written.piece.name.empty()) findings = piece_damage(path, written.piece);
    return findings.empty() && ranks.rank() == 0 ? manifest_damage(path) : findings;
  });
  if (!verdict.damage.empty())
    throw IoFailed("checkpoint: " + step_name(step) +
                   " was read back from the disk and differs from the written one, so that no older one was removed: " +
                   verdict.damage);
  if (ranks.rank() == 0 && !verdict.stopped) known_[path] = {files, true};
  return !verdict.stopped;
}

void Pruner::remove_older(Communicator& ranks, const std::function<void()>& between) {
  const bool first = ranks.rank() == 0;
  std::vector<StepDirectory> steps;  // of the first rank, as all that counts them
  std::size_t at = 0;
  std::int64_t kept = 0;
  std::string files;
  const auto next_unknown = [&]() -> std::string {
    for (; at < steps.size() && kept < plan_.keep_last; ++at) {
      files = state_of_files(steps[at].path);
      const auto known = known_.find(steps[at].path);
      if (known == known_.end() || known->second.files != files) return steps[at].path;
      kept += known->second.whole;
    }
    return "";
  };
  together(ranks, [&] {
    if (first) steps = committed_steps(plan_.directory);
  });
  for (;;) {
    std::string path = first ? next_unknown() : "";
    ranks.broadcast_host(path, 0);
    if (path.empty()) break;
    const Verdict verdict = agreed(ranks, [&] { return verify_part(path, ranks.rank(), ranks.size(), between); });
    if (verdict.stopped) return;
    if (!first) continue;
    known_[path] = {files, verdict.damage.empty()};
    if (!verdict.damage.empty())
      notes_.push_back(path + " is damaged and doesn't count for checkpoint.keep_last: " + verdict.damage);
  }
  together(ranks, [&] {
    for (; at < steps.size(); ++at)
      if (may_go(steps[at].step)) {
        known_.erase(steps[at].path);
        remove_step(plan_.directory, steps[at], nonce_);
      }
  });
}

}  // namespace forge
