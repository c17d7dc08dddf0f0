#pragma once

#include <cstdint>

namespace forge {

// Signals that ask a job to save and leave. Handlers only set a flag, one for each signal; the training loop asks at
// the end of a step. The flags belong to the process, as signals do: ranks that are threads see the same ones.

// From here on SIGTERM and SIGUSR1 no longer end the process.
void catch_stop_signals();
// From here on they do again; one that has arrived does it now.
void release_stop_signals();
// SIGTERM, SIGUSR1, or 0: which one has arrived.
int stop_signal();
// "SIGTERM".
const char* name_of_signal(int signal);

// The job's time limit as the batch system gives it (SLURM_JOB_END_TIME), seconds since 1970; 0 where there is none.
std::int64_t job_end_time();

}  // namespace forge
