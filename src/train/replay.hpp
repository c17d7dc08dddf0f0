#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/replay_communicator.hpp"
#include "train/session.hpp"

namespace forge {

// A step of a replayed rank: seconds of the host until the device is done, its waits for experts' counts, the
// timeline's spans, and the rank's bytes sent, by group.
struct ReplayedStep {
  double seconds = 0;
  std::int64_t waits = 0;
  std::vector<Timeline::Span> spans;
  std::vector<std::pair<std::string, Traffic>> sent;
};

// Tasks of one kind in a step: how often, their seconds in the compute stream, and the collectives' part of these.
struct TaskTime {
  std::string task, of;  // name_of(task.op), subject_of(task)
  std::int64_t calls = 0;
  double seconds = 0, collectives = 0;
  bool waits = false;  // for another stream
};
// The times in the order of each kind's first task.
std::vector<TaskTime> task_times(const RunSetup& setup, const std::vector<Task>& tasks,
                                 const std::vector<Timeline::Span>& spans);
// When the compute stream had nothing to do between the first of these tasks and the last.
struct Gaps {
  double seconds = 0, longest = 0;
};
Gaps gaps_of(const std::vector<Timeline::Span>& spans);

// One rank of a job without its peers, on a mesh over a ReplayCommunicator: training steps of the largest batch, with
// drawn tokens in the place of data, from initial values on. Only its own rows have labels, so that losses are means
// over these.
template <class T>
class Replay {
 public:
  // Fills the memory for receives with numbers, and tells the wire.
  Replay(Session<T>& session, ReplayWire& wire);

  ReplayedStep step();
  // The tasks that the spans' numbers count.
  std::vector<Task> tasks() const { return session_.tasks(); }

 private:
  Session<T>& session_;
  Optimizer<T> optimizer_;
  HostBatch batch_;
  std::int64_t next_ = 1, updates_ = 0;
};

}  // namespace forge
