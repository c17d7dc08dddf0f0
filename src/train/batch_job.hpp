#pragma once

#include <string>

namespace forge {

// The batch job that this process belongs to, as Slurm's environment names it.
struct BatchJob {
  std::string name;            // "cluster.1234", "cluster.1234_5" of an array; "" without Slurm
  bool started_again = false;  // SLURM_RESTART_COUNT is above 0: preempted, requeued, or its node was lost
};
BatchJob batch_job();

// Tells the job script where the run's checkpoints stand, which counts by them whether a job that fails again and again
// gets on: one line with the absolute path, in the file that FORGE_JOB_FILE names, if it names one. Returns the error,
// or "".
std::string write_job_file(const std::string& checkpoint_directory);

}  // namespace forge
