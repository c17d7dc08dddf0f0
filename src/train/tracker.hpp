#pragma once

#include <sys/types.h>

#include <string>

#include "config/deck.hpp"
#include "core/heartbeat.hpp"

namespace forge {

// jobscripts/track.py beside a job (output.track): a process of its own that sends metrics.jsonl to a tracker, writes
// its log to <directory>/track.log, and ends behind this process, however that ends: it holds a pipe of it.
class Tracker {
 public:
  // Starts it; where it can't be started take_news() says why.
  Tracker(TrackTo to, std::string directory);
  // finish(), for ten seconds at most.
  ~Tracker();
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // Nothing comes any more: waits, beating, until all is sent, at most so many seconds.
  void finish(double seconds, Heartbeat* heartbeat = nullptr);
  // A line for people since the last call, why nothing more is sent: "", nothing.
  std::string take_news();

 private:
  std::string start(TrackTo to);
  bool ended();

  std::string directory_, news_;
  pid_t process_ = 0;  // 0: there is none, or it has ended
  int pipe_ = -1;      // the end to write: its closing is the job's end
};

}  // namespace forge
