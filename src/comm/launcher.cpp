#include "comm/launcher.hpp"
#include "core/parse.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace forge {

namespace {

// What a launcher tells each of its processes: their number, and which one this is.
struct Launcher {
  const char* size;
  const char* rank;
  const char* words;
};

// Where several are set, the first one counts: what starts processes for MPI, then what starts them for anything.
constexpr Launcher launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun started"},
    {"PMI_SIZE", "PMI_RANK", "a launcher by PMI, as MPICH's mpiexec is, started"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MVAPICH's mpiexec started"},
    {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "jsrun started"},
    {"FLUX_JOB_SIZE", "FLUX_TASK_RANK", "flux run started"},
    {"MPI_LOCALNRANKS", "MPI_LOCALRANKID", "another MPI's mpiexec started, on this node,"},
};

// -1: not set, or no number.
long number_of(const char* name) {
  const char* text = std::getenv(name);
  long value = -1;
  return text && reads_as(text, value) && value >= 0 ? value : -1;
}

// The tasks of the step of srun that this process belongs to; -1 in none: in a script that sbatch started, whose
// SLURM_NTASKS is what srun would start, and in a shell on a terminal, for which srun starts other tasks in vain.
long tasks_of_srun() {
  constexpr long first_special_step = 4294967280;  // of shells, scripts and containers: no tasks
  const long step = number_of("SLURM_STEP_ID");
  if (step < 0 || step >= first_special_step) return -1;
  if (std::getenv("SLURM_PTY_PORT") && isatty(STDIN_FILENO)) return -1;
  const long tasks = number_of("SLURM_STEP_NUM_TASKS");
  return tasks >= 0 ? tasks : number_of("SLURM_NTASKS");
}

// `words` say which launcher started how many; `name` is the variable that says so, `unset` the one to leave out.
std::string sentence(const std::string& words, const std::string& name, const std::string& unset,
                     const std::string& mpi) {
  return words + " (" + name + " = " + std::getenv(name.c_str()) + "), but " + mpi +
         " has 1 rank: each would run alone; legal: srun --mpi=pmix (docs/running.md, MPI and NCCL), or the mpirun of "
         "that MPI; one process; or, for runs of their own, env -u " +
         unset + " before forge";
}

// Whether a launcher that this MPI can speak with has started the process.
bool has_launcher(const std::string& mpi) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK"})
    if (std::getenv(name)) return true;
  const bool knows_pmix_alone = mpi.starts_with("Open MPI v") && !mpi.starts_with("Open MPI v4");
  return !knows_pmix_alone && (std::getenv("PMI_RANK") || std::getenv("PMI_SIZE"));
}

void set_or_unset(const char* name, const std::optional<std::string>& value) {
  if (value)
    setenv(name, value->c_str(), 1);
  else
    unsetenv(name);
}

}  // namespace

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  if (tasks_of_srun() > 1) return static_cast<int>(std::max(0L, number_of("SLURM_PROCID")));
  return 0;
}

std::string other_processes_of_launcher(const std::string& mpi) {
  for (const Launcher& launcher : launchers)
    if (const long size = number_of(launcher.size); size >= 0)
      return size > 1 ? sentence(launcher.words + (" " + std::to_string(size)) + " processes", launcher.size,
                                 launcher.size, mpi)
                      : "";
  if (const long tasks = tasks_of_srun(); tasks >= 0) {
    const char* name = number_of("SLURM_STEP_NUM_TASKS") >= 0 ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    return tasks > 1 ? sentence("srun started " + std::to_string(tasks) + " tasks", name, "SLURM_STEP_ID", mpi) : "";
  }
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const long rank = number_of(name); rank > 0)
      return sentence("a launcher started this process as rank " + std::to_string(rank), name, name, mpi);
  // Of PyTorch's launchers each process has a rank; the size alone is somebody's export.
  const long size = number_of("WORLD_SIZE"), rank = number_of("RANK");
  return size > 1 && rank >= 0 && rank < size
             ? sentence("torchrun, or a launcher of its kind, started " + std::to_string(size) + " processes",
                        "WORLD_SIZE", "WORLD_SIZE", mpi)
             : "";
}

LoneStart::LoneStart(const std::string& mpi) {
  if (has_launcher(mpi)) return;
  // Open MPI 4 starts a daemon, unless it is told that the process stays alone, and needs no directory.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
  // In a step of srun that speaks no language of its own it would end the process.
  change("SLURM_STEP_ID", {});
  // Open MPI 5 always makes a directory, and a file of shared memory, which it leaves behind.
  const char* place = std::getenv("TMPDIR");
  std::string name = std::string(place && *place ? place : "/tmp") + "/forge-mpi-XXXXXX";
  if (!mkdtemp(name.data())) return;  // MPI will say what it needs
  directory_ = name;
  change("TMPDIR", name);
  change("OMPI_MCA_btl_sm_backing_directory", name);
}

LoneStart::~LoneStart() {
  for (const auto& [name, value] : before_) set_or_unset(name, value);
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

void LoneStart::change(const char* name, const std::optional<std::string>& value) {
  const char* before = std::getenv(name);
  before_.emplace_back(name, before ? std::optional<std::string>(before) : std::nullopt);
  set_or_unset(name, value);
}

}  // namespace forge
