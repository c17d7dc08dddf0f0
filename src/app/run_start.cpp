#include "app/run_start.hpp"

#include "app/end_of_job.hpp"
#include "checkpoint/directory.hpp"
#include "train/batch_job.hpp"

namespace forge {

namespace {

// Ends what dead jobs have left in checkpoint.directory; for the log.
std::vector<std::string> notes_of_locks(const RunFiles& files, const std::string& directory) {
  std::vector<std::string> notes{files.directory.lock().warning()};
  if (files.checkpoints) {
    notes.push_back(files.checkpoints->warning());
    for (const std::string& path :
         tidy_directory(directory, [&](const std::string& path) { return files.checkpoints->is_left_over(path); }))
      notes.push_back(path + " may be of another job that runs still, and stays");
    for (std::string& note : notes_of_strange_steps(directory)) notes.push_back(std::move(note));
  }
  std::erase(notes, "");
  return notes;
}

// Of the first rank. Errors are caught on their way, which nobody else does: files that are half made give their locks
// back.
void look_around(const CommandLine& line, const Deck& deck, Start& start) {
  try {
    start.files = std::make_unique<RunFiles>(deck, [](const std::string& text) { print_message("waiting", 0, text); });
    start.notes = notes_of_locks(*start.files, deck.checkpoint.directory);
    start.plan = start_of_run({line.restart, line.fresh}, deck.checkpoint, batch_job());
    start.notes.insert(start.notes.end(), start.plan.notes.begin(), start.plan.notes.end());
  } catch (...) {
    start.files.reset();
    throw;
  }
}

}  // namespace

Start start_of(const CommandLine& line, const Deck& deck, const World& world) {
  if (deck.checkpoint.directory.empty() && (line.restart == "latest" || line.fresh))
    throw BadInput(std::string(line.fresh ? "--fresh" : "--restart latest") +
                   ": the deck has no checkpoint.directory; legal: give one" +
                   (line.fresh ? ", or leave --fresh out" : ", or --restart DIR"));
  Start start;
  std::int64_t restarts = 0;
  world.watchdog().start_other(0, "run directory");
  if (world.rank() == 0) {
    look_around(line, deck, start);
    start.if_it_fails = std::make_unique<LastAct>([files = start.files.get()] { files->give_back(); });
    restarts = !start.plan.candidates.empty();
  }
  world.make_world()->max_host({&restarts, 1});
  start.restarts = restarts != 0;
  return start;
}

}  // namespace forge
