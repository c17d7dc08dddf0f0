#include <cstdio>
#include <filesystem>
#include <thread>

#include "app/verbs.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/directory.hpp"
#include "core/file_errors.hpp"
#include "train/restart.hpp"

namespace forge {

void run_verify_checkpoint(const CommandLine& line) {
  const std::string path = named_by_latest(line.inputs.front());
  std::vector<std::string> directories;
  const auto has = [&](const char* name) {
    return reading([&] { return std::filesystem::exists(path + "/" + name); });
  };
  if (has(manifest_name) || has(manifest_hash_name))
    directories.push_back(path);
  else
    for (const StepDirectory& step : committed_steps(path)) directories.push_back(step.path);
  if (directories.empty())
    throw BadCheckpoint(path + " is neither a checkpoint (it has no " + manifest_name +
                        ") nor a directory of checkpoints" + no_checkpoint_hint(path));
  std::size_t damaged = 0;
  for (const std::string& directory : directories) {
    const auto findings = verify_checkpoint(directory, static_cast<int>(std::thread::hardware_concurrency()));
    for (const std::string& finding : findings) std::printf("%s\n", finding.c_str());
    damaged += !findings.empty();
    std::printf("%s: %s\n", directory.c_str(), findings.empty() ? "whole" : "damaged");
    std::fflush(stdout);
  }
  if (damaged > 0)
    throw BadCheckpoint(std::to_string(damaged) + " of " + std::to_string(directories.size()) +
                        (directories.size() == 1 ? " checkpoint is" : " checkpoints are") + " damaged");
}

}  // namespace forge
