// What a start does to checkpoint.directory, and what a job goes on from when Slurm starts it again: wherever an
// earlier start of it was killed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "core/faults.hpp"
#include "sample.hpp"
#include "train/restart.hpp"

namespace forge::test {
namespace {

// A directory with a step's name that says whose it is.
void write_step(const fs::path& directory, std::int64_t step, const std::string& who) {
  const fs::path path = directory / step_name(step);
  fs::create_directories(path);
  std::ofstream(path / manifest_name);
  std::ofstream(path / "who") << who << " " << step;
}

std::string who(const fs::path& path) {
  if (path.empty()) return "nobody";
  std::string text;
  std::getline(std::ifstream(path / "who"), text);
  return text;
}

// Everything that says whose it is, below a directory.
std::multiset<std::string> all_below(const fs::path& directory) {
  std::multiset<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.path().filename() == "who") found.insert(who(entry.path().parent_path()));
  return found;
}

// What somebody types: --fresh, --restart, checkpoint.resume, checkpoint.model_from; $ is the scratch directory.
struct Command {
  std::string name;
  bool fresh = false;
  std::string restart = "";
  Resume resume = Resume::never;
  std::string model_from = "";
  bool found = true;  // whether another run's checkpoints stand in checkpoint.directory
};

const std::vector<Command> commands{
    {"plain", false, "", Resume::never, "", false},
    {"plain_auto", false, "", Resume::automatic, "", false},
    {"plain_model", false, "", Resume::never, "$/elsewhere", false},
    {"fresh", true},
    {"fresh_auto", true, "", Resume::automatic},
    {"fresh_model_elsewhere", true, "", Resume::never, "$/elsewhere/step_00000015"},
    {"fresh_model_here", true, "", Resume::never, "$/ck"},
    {"fresh_model_here_slash", true, "", Resume::automatic, "$/ck/"},
    {"fresh_model_step_here", true, "", Resume::never, "$/ck/step_00000010"},
    {"latest", false, "latest"},
    {"auto", false, "", Resume::automatic},
    {"restart_here", false, "$/ck"},
    {"restart_step_here", false, "$/elsewhere/../ck/step_00000020/"},
    {"restart_elsewhere", false, "$/elsewhere", Resume::automatic},
    {"restart_step_elsewhere", false, "$/elsewhere/step_00000015"},
};

// A directory as the command finds it, and the command in it.
class Place {
 public:
  explicit Place(const Command& command) {
    for (const std::int64_t step : {10, 20, 30})
      if (command.found) write_step(scratch_.path / "ck", step, "other");
    for (const std::int64_t step : {15, 25}) write_step(scratch_.path / "elsewhere", step, "elsewhere");
    deck_.directory = (scratch_.path / "ck").string();
    deck_.resume = command.resume;
    deck_.model_from = resolved(command.model_from);
    request_ = {resolved(command.restart), command.fresh};
  }

  const CheckpointDeck& deck() const { return deck_; }
  RunStart start(const BatchJob& job) const { return start_of_run(request_, deck_, job); }
  // What parameters come from: a checkpoint to go on from, a model, or neither.
  std::string origin(const RunStart& start) const {
    if (!start.candidates.empty()) return "restart " + who(start.candidates.front());
    if (start.model_from.empty()) return "nothing";
    const auto steps = committed_steps(start.model_from);
    return "model " + who(steps.empty() ? fs::path(start.model_from) : fs::path(steps.front().path));
  }
  static std::int64_t step(const RunStart& start) {
    if (start.candidates.empty()) return 0;
    return step_of_name(fs::path(start.candidates.front()).filename());
  }
  void take(const RunStart& start) const { take_effect(start, deck_, step(start)); }
  // As if the job were killed before its call `n` on a file; whether it was.
  bool killed_at(const RunStart& start, int n) const {
    ::setenv("FORGE_FAULT", ("fail:0:1:" + std::to_string(n)).c_str(), 1);
    bool killed = false;
    {
      const SaveFaults faults(0, 1);
      try {
        take(start);
      } catch (const IoFailed&) {
        killed = true;
      }
    }
    ::unsetenv("FORGE_FAULT");
    return killed;
  }
  std::multiset<std::string> others() const {
    auto found = all_below(scratch_.path);
    for (auto it = found.begin(); it != found.end();) it = it->rfind("own", 0) == 0 ? found.erase(it) : std::next(it);
    return found;
  }

 private:
  std::string resolved(const std::string& text) const {
    return text.empty() || text[0] != '$' ? text : scratch_.path.string() + text.substr(1);
  }

  const Scratch scratch_;
  CheckpointDeck deck_;
  RestartRequest request_;
};

const BatchJob first{"cluster.7", false}, again{"cluster.7", true};

class Starts : public testing::TestWithParam<Command> {};

// The job goes on from what it has saved itself, however often and wherever it is killed, and moves nothing aside.
void expect_only_growth(const Place& place, std::int64_t from) {
  const auto aside = next_aside(place.deck().directory);
  for (const std::int64_t saved : {from + 5, from + 9}) {
    write_step(place.deck().directory, saved, "own");
    const RunStart next = place.start(again);
    EXPECT_EQ(place.origin(next), "restart own " + std::to_string(saved));
    for (int n = 1; place.killed_at(next, n); ++n) ASSERT_LT(n, 100);
    place.take(next);
    EXPECT_EQ(next_aside(place.deck().directory), aside) << "its own steps were moved aside";
  }
}

// Whatever the command line says, and wherever its first start and those after it were killed: a job that is started
// again begins where it began, until it has saved a step of its own; then it goes on from that. Nothing of other runs
// is lost.
TEST_P(Starts, GoOnFromTheirOwnWhereverTheyAreKilled) {
  bool killed = true;
  int kills = 0;
  for (int n = 1; killed; ++n) {
    ASSERT_LT(n, 100);
    const Place place(GetParam());
    const auto before = place.others();
    const std::string begun = place.origin(place.start(first));
    killed = place.killed_at(place.start(first), n);
    for (int m = 1; killed && place.killed_at(place.start(again), m); ++m, ++kills) {
      ASSERT_LT(m, 100);
      EXPECT_EQ(place.origin(place.start(again)), begun) << "killed at calls " << n << " and " << m;
      EXPECT_EQ(place.others(), before) << "killed at calls " << n << " and " << m;
    }
    EXPECT_EQ(place.origin(place.start(again)), begun) << "killed at call " << n;
    expect_only_growth(place, Place::step(place.start(again)));
    EXPECT_EQ(place.others(), before) << "killed at call " << n;
  }
  EXPECT_GE(kills, 10);
}

// Killed at each call in turn, and started again by somebody else, as another job.
TEST_P(Starts, OfAnotherJobLoseNothing) {
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 100);
    const Place place(GetParam());
    const auto before = place.others();
    if (!place.killed_at(place.start(first), n)) break;
    for (const bool started_again : {false, true}) {
      try {
        place.start({"cluster.8", started_again});
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ExitCode::no_checkpoint || error.code() == ExitCode::bad_input) << error.what();
      }
    }
    EXPECT_EQ(place.others(), before) << "killed at call " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Commands, Starts, testing::ValuesIn(commands),
                         [](const auto& info) { return info.param.name; });

struct Fixture {
  const Scratch scratch;
  CheckpointDeck deck;
  Fixture() { deck.directory = (scratch.path / "ck").string(); }
  RunStart start(bool fresh, const BatchJob& job, const std::string& restart = "") const {
    return start_of_run({restart, fresh}, deck, job);
  }
  std::int64_t newest() const {
    const auto steps = committed_steps(deck.directory);
    return steps.empty() ? -1 : steps.front().step;
  }
};

// A job's first start believes no marker, not even one with its own number; neither does another job, another task of
// an array or another cluster's job of the same number.
TEST(Marker, IsOfOneJob) {
  Fixture f;
  take_effect(f.start(true, first), f.deck, 0);
  write_step(f.deck.directory, 5, "own");
  EXPECT_EQ(f.start(true, again).candidates.size(), 1u);
  for (const BatchJob& job : {first, BatchJob{"cluster.8", true}, BatchJob{"other.7", true}, BatchJob{"7", true},
                              BatchJob{"cluster.71", true}, BatchJob{"", true}, BatchJob{}}) {
    EXPECT_TRUE(f.start(true, job).candidates.empty()) << job.name;
    EXPECT_THROW(f.start(false, job), BadInput) << job.name;
  }
}

// Another job goes on with the run while the first one waits to be started again: both know it as theirs.
TEST(Marker, NamesEveryJobOfARun) {
  Fixture f;
  take_effect(f.start(true, first), f.deck, 0);
  write_step(f.deck.directory, 5, "own");
  const BatchJob second{"cluster.8", false};
  take_effect(f.start(false, second, "latest"), f.deck, 5);
  write_step(f.deck.directory, 9, "own");
  for (const BatchJob& job : {again, BatchJob{"cluster.8", true}}) {
    take_effect(f.start(true, job), f.deck, 9);
    EXPECT_EQ(f.newest(), 9) << job.name;
  }
  EXPECT_EQ(read_run_marker(f.deck.directory).jobs, (std::vector<std::string>{"cluster.7", "cluster.8"}));
}

// A fresh start takes the directory from the jobs before it; without Slurm, too.
TEST(Marker, GoesWithAFreshStart) {
  for (const BatchJob& job : {BatchJob{"cluster.8", false}, BatchJob{}}) {
    Fixture f;
    take_effect(f.start(true, first), f.deck, 0);
    write_step(f.deck.directory, 5, "own");
    take_effect(f.start(true, job), f.deck, 0);
    write_step(f.deck.directory, 6, "other");
    EXPECT_TRUE(f.start(true, again).candidates.empty()) << job.name;
    EXPECT_EQ(fs::exists(f.scratch.path / "ck" / "run"), !job.name.empty());
  }
}

// Where a run goes on from elsewhere, all that stood in its directory is another's: keep_last must not remove it.
TEST(Marker, StepsOfAnotherRunAreMovedAsideByARestartFromElsewhere) {
  Fixture f;
  for (const std::int64_t step : {5, 25}) write_step(f.deck.directory, step, "other");
  write_step(f.scratch.path / "elsewhere", 20, "elsewhere");
  const auto notes = take_effect(f.start(false, {}, (f.scratch.path / "elsewhere").string()), f.deck, 20);
  EXPECT_EQ(f.newest(), -1);
  EXPECT_EQ(who(f.scratch.path / "ck" / "old.1" / step_name(5)), "other 5");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "earlier checkpoints moved to " + f.deck.directory + "/old.1");
}

TEST(BatchJob, ComesFromTheEnvironment) {
  const auto clear = [] {
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"})
      ::unsetenv(name);
  };
  clear();
  EXPECT_EQ(batch_job().name, "");
  EXPECT_FALSE(batch_job().started_again);
  ::setenv("SLURM_JOB_ID", "12", 1);
  EXPECT_EQ(batch_job().name, "12");
  ::setenv("SLURM_CLUSTER_NAME", "forge", 1);
  ::setenv("SLURM_RESTART_COUNT", "0", 1);
  EXPECT_EQ(batch_job().name, "forge.12");
  EXPECT_FALSE(batch_job().started_again);
  ::setenv("SLURM_RESTART_COUNT", "11", 1);
  EXPECT_TRUE(batch_job().started_again);
  ::setenv("SLURM_ARRAY_JOB_ID", "9", 1);
  ::setenv("SLURM_ARRAY_TASK_ID", "3", 1);
  EXPECT_EQ(batch_job().name, "forge.9_3");
  clear();
}

// FORGE_JOB_FILE: where the checkpoints stand, as an absolute path; a file that cannot be written is told, not thrown.
TEST(BatchJob, TheScriptLearnsOfTheCheckpoints) {
  Fixture f;
  const fs::path file = f.scratch.path / "job";
  ::setenv("FORGE_JOB_FILE", file.c_str(), 1);
  EXPECT_TRUE(take_effect(f.start(false, {}), f.deck, 0).empty());
  std::string line;
  std::getline(std::ifstream(file), line);
  EXPECT_EQ(line, f.deck.directory);
  EXPECT_EQ(write_job_file("checkpoints/a"), "");
  std::getline(std::ifstream(file), line);
  EXPECT_EQ(line, (fs::current_path() / "checkpoints/a").string());
  ::setenv("FORGE_JOB_FILE", (f.scratch.path / "none" / "job").c_str(), 1);
  const auto notes = take_effect(f.start(false, {}), f.deck, 0);
  ::unsetenv("FORGE_JOB_FILE");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("none/job"), std::string::npos) << notes[0];
}

}  // namespace
}  // namespace forge::test
