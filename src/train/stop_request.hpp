#pragma once

#include <cstdint>

namespace forge {

// Signals that ask a job to save and leave. They stay blocked, and the training loop asks for them at the end of a
// step: no handler may run, since oneDNN's products have their stack pointer in memory of the heap, where the frame of
// a handler would overwrite what stands in front of it. They belong to the process: ranks that are threads see the
// same.

// From here on SIGTERM and SIGUSR1 no longer end the process. For the first thread, before it makes others.
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
