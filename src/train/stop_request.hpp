#pragma once

#include <cstdint>
#include <functional>
#include <thread>

namespace forge {

// Signals that ask a process to end: SIGINT, SIGTERM, SIGHUP and SIGUSR1, but not SIGINT and SIGHUP where the process
// was started ignoring them. They are blocked in all threads but one of their own, which waits for them: no
// handler may run, since oneDNN's products have their stack pointer in memory of the heap, where the frame of a handler
// would overwrite the memory in front of it. They belong to the process: ranks that are threads see the same.
//
// Signals end the process as they do by default, after left-over files are removed (core/left_over.hpp); or they ask a
// training, which polls stop_signal(), to save and leave. A second SIGINT ends that, too, unless it comes within a
// second of the first, as one that a launcher hands on does.
class StopListener {
 public:
  // Called in the listener's thread: a signal has asked; or (`ends`) a second SIGINT ends the process now.
  using Tell = std::function<void(int signal, bool ends)>;

  // One object at a time, made by the first thread before others. With `tell` the signals ask, else they end.
  explicit StopListener(Tell tell = {});
  ~StopListener();
  StopListener(const StopListener&) = delete;
  StopListener& operator=(const StopListener&) = delete;

 private:
  void listen();

  int signals_ = -1;  // a signalfd
  Tell tell_;
  std::thread thread_;
};

// From here on these signals end the process; one that has asked does it now.
void end_on_stop_signals();
// The signal that has asked, 0: none; of several SIGINT before SIGTERM, SIGUSR1 and SIGHUP.
int stop_signal();
// "SIGTERM".
const char* name_of_signal(int signal);
// The rank of a signal: of several the one with the highest weight counts; 0: none.
int weight_of_signal(int signal);
int signal_of_weight(int weight);

// The job's time limit as the batch system gives it (SLURM_JOB_END_TIME), seconds since 1970; 0 where there is none.
std::int64_t job_end_time();

}  // namespace forge
