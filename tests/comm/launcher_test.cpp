#include "comm/launcher.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

// What launchers leave in the environment, for an MPI of one rank.

namespace forge {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Of the launchers that forge knows none has started this process, but for `set`; put back at the end.
class Set {
 public:
  explicit Set(const Variables& set) {
    for (const std::string name : {"OMPI_COMM_WORLD_SIZE",
                                   "OMPI_COMM_WORLD_RANK",
                                   "PMI_SIZE",
                                   "PMI_RANK",
                                   "PMIX_RANK",
                                   "PMIX_NAMESPACE",
                                   "MV2_COMM_WORLD_SIZE",
                                   "JSM_NAMESPACE_SIZE",
                                   "FLUX_JOB_SIZE",
                                   "MPI_LOCALNRANKS",
                                   "SLURM_STEP_ID",
                                   "SLURM_STEP_NUM_TASKS",
                                   "SLURM_NTASKS",
                                   "SLURM_PROCID",
                                   "SLURM_PTY_PORT",
                                   "WORLD_SIZE",
                                   "RANK",
                                   "TMPDIR",
                                   "OMPI_MCA_ess_singleton_isolated",
                                   "OMPI_MCA_orte_create_session_dirs",
                                   "OMPI_MCA_btl_sm_backing_directory"}) {
      const char* value = std::getenv(name.c_str());
      before_.emplace(name, value ? std::string(value) : unset);
      unsetenv(name.c_str());
    }
    for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Set() {
    for (const auto& [name, value] : before_)
      value == unset ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;

 private:
  inline static const std::string unset = "\n";
  std::map<std::string, std::string> before_;
};

std::string refusal_of(const Variables& variables) {
  const Set set(variables);
  return other_processes_of_launcher("MPI 1.0");
}

TEST(Launcher, SeveralProcessesThatMpiDoesNotKnowAreRefused) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "1"}},
       "srun started 4 tasks (SLURM_NTASKS = 4)"},
      {{{"SLURM_STEP_ID", "7"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "8"}},
       "srun started 2 tasks (SLURM_STEP_NUM_TASKS = 2)"},
      {{{"PMI_SIZE", "4"}, {"PMI_RANK", "1"}}, "started 4 processes (PMI_SIZE = 4)"},
      {{{"PMI_SIZE", "4"}}, "started 4 processes (PMI_SIZE = 4)"},
      {{{"OMPI_COMM_WORLD_SIZE", "3"}}, "mpirun started 3 processes (OMPI_COMM_WORLD_SIZE = 3)"},
      {{{"MV2_COMM_WORLD_SIZE", "2"}}, "started 2 processes"},
      {{{"JSM_NAMESPACE_SIZE", "2"}}, "started 2 processes"},
      {{{"FLUX_JOB_SIZE", "2"}}, "started 2 processes"},
      {{{"MPI_LOCALNRANKS", "16"}}, "on this node, 16 processes"},
      {{{"PMIX_RANK", "3"}}, "started this process as rank 3 (PMIX_RANK = 3)"},
      {{{"WORLD_SIZE", "8"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}},
       "torchrun, or a launcher of its kind, started 8 processes"},
  };
  for (const auto& [variables, words] : cases) {
    const std::string refusal = refusal_of(variables);
    EXPECT_NE(refusal.find(words), std::string::npos) << words << " is not in: " << refusal;
    EXPECT_NE(refusal.find("but MPI 1.0 has 1 rank"), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("srun --mpi=pmix (docs/running.md"), std::string::npos) << refusal;
  }
}

TEST(Launcher, OneProcessIsLegalWhateverIsSet) {
  const std::vector<Variables> cases = {
      {},
      {{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "5"}, {"SLURM_PROCID", "0"}},           // a script of sbatch
      {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}},  // srun -n 1 in it
      {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_NTASKS", "32"}},                       // salloc's shell on a node
      {{"SLURM_STEP_ID", "4294967291"}, {"SLURM_NTASKS", "32"}},                       // a script, by another name
      {{"OMPI_COMM_WORLD_SIZE", "1"},
       {"SLURM_STEP_ID", "0"},
       {"SLURM_STEP_NUM_TASKS", "3"}},  // mpirun -n 1, by its daemon
      {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}},
      {{"PMIX_RANK", "0"}},
      {{"WORLD_SIZE", "8"}},  // somebody's export
      {{"WORLD_SIZE", "8"}, {"RANK", "9"}},
      {{"WORLD_SIZE", "1"}, {"RANK", "0"}},
      {{"PMI_SIZE", "many"}},
  };
  for (const Variables& variables : cases) EXPECT_EQ(refusal_of(variables), "");
}

TEST(Launcher, RanksSpeakInTheirTurn) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    const Set set(Variables{{name, "5"}});
    EXPECT_EQ(launched_rank(), 5) << name;
  }
  const Set set(Variables{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "2"}});
  EXPECT_EQ(launched_rank(), 2);
}

TEST(Launcher, AloneMpiKeepsItsFilesInADirectoryOfThisProcess) {
  for (const bool had_directory : {false, true}) {
    const std::string place = testing::TempDir() + "lone";
    std::filesystem::create_directory(place);
    const Set set(had_directory ? Variables{{"TMPDIR", place}} : Variables{});
    setenv("SLURM_STEP_ID", "3", 1);
    std::string own;
    {
      const LoneStart alone("Open MPI v4.1.4");
      own = std::getenv("TMPDIR");
      struct stat status;
      ASSERT_EQ(stat(own.c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 0777, 0700u);
      EXPECT_EQ(own.substr(0, own.rfind('/')), had_directory ? place : "/tmp");
      EXPECT_EQ(std::getenv("SLURM_STEP_ID"), nullptr);
      std::filesystem::create_directories(own + "/ompi/0");
    }
    EXPECT_FALSE(std::filesystem::exists(own));
    EXPECT_STREQ(std::getenv("SLURM_STEP_ID"), "3");
    EXPECT_EQ(std::getenv("TMPDIR") != nullptr, had_directory);
    if (had_directory) {
      EXPECT_EQ(std::getenv("TMPDIR"), place);
    }
    std::filesystem::remove_all(place);
  }
}

TEST(Launcher, ALaunchedProcessKeepsTheLaunchersDirectories) {
  for (const std::string mpi : {"Open MPI v4.1.4", "Open MPI v5.0.7"})
    for (const std::string name : {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "PMIX_NAMESPACE"}) {
      const Set set(Variables{{name, "1"}, {"SLURM_STEP_ID", "0"}});
      const LoneStart start(mpi);
      const bool alone = mpi == "Open MPI v5.0.7" && name.starts_with("PMI_");  // it speaks PMIx alone
      EXPECT_EQ(std::getenv("TMPDIR") != nullptr, alone) << mpi << ": " << name;
      EXPECT_EQ(std::getenv("OMPI_MCA_orte_create_session_dirs") != nullptr, alone) << mpi << ": " << name;
      EXPECT_EQ(std::getenv("SLURM_STEP_ID") == nullptr, alone) << mpi << ": " << name;
    }
}

}  // namespace
}  // namespace forge
