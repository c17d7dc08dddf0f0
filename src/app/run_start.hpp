#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "comm/world.hpp"
#include "config/directory_lock.hpp"
#include "core/last_words.hpp"
#include "train/restart.hpp"
#include "train/run_directory.hpp"

namespace forge {

// Directories, with their locks, that the first rank owns for as long as the job lives.
struct RunFiles {
  // `say`: tells a person at once of other jobs that this one waits for.
  RunFiles(const Deck& deck, const std::function<void(const std::string&)>& say)
      : directory(deck.output.directory, {.say = say}) {
    if (!deck.checkpoint.stop_on_failure) directory.keep_what_fails();
    if (!deck.checkpoint.directory.empty())
      checkpoints.emplace(LockedDirectory{"checkpoint.directory", deck.checkpoint.directory, ".checkpoints.lock"},
                          LockTimes{.say = say});
  }

  // Before anything is written.
  void give_back() {
    if (checkpoints) checkpoints->give_back();
    directory.give_back();
  }

  RunDirectory directory;
  std::optional<DirectoryLock> checkpoints;
};

// How a run starts: from a checkpoint or with step 1.
struct Start {
  std::unique_ptr<RunFiles> files;  // of the first rank
  // On the first rank: gives its files back; when the run writes, the log says why it stopped.
  std::unique_ptr<LastAct> if_it_fails;
  RunStart plan;  // of the first rank
  bool restarts = false;
  std::vector<std::string> notes;  // for the log

  RunDirectory* directory() const { return files ? &files->directory : nullptr; }
  DirectoryLock* checkpoints() const { return files && files->checkpoints ? &*files->checkpoints : nullptr; }
};

// On all ranks: the first one has the run directory, looks for checkpoints and throws where the others would have to.
Start start_of(const CommandLine& line, const Deck& deck, const World& world);

}  // namespace forge
