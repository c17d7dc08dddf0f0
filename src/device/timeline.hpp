#pragma once

#include <deque>
#include <exception>
#include <optional>
#include <string_view>
#include <vector>

#include "device/time_mark.hpp"

namespace forge {

// The work of a rank's streams between begin() and end(), and its times: tasks in the compute stream, and collectives
// in theirs. Whoever gives work to streams names its task. Outside of the two nothing is recorded. Or, for less cost,
// the times when the compute stream depends on other ranks.
class Timeline {
 public:
  enum class Of { tasks, waits };
  struct Span {
    int task = -1;                       // of the list that is run
    std::string_view collective, group;  // "": the task itself
    bool behind = false;                 // in another stream than the compute stream
    double start = 0, end = 0;           // seconds from begin()
  };
  // Records the end of its span when it goes.
  class Scope {
   public:
    Scope(TimeMark& end, Stream& stream) : end_(end), stream_(stream), exceptions_(std::uncaught_exceptions()) {}
    // A failure is reported by itself, not by its measurement.
    ~Scope() {
      if (std::uncaught_exceptions() == exceptions_) end_.record(stream_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    TimeMark& end_;
    Stream& stream_;
    int exceptions_;
  };

  void begin(Stream& compute, Of of = Of::tasks);
  // Waits for all streams that were measured; spans in the order in which they were given.
  std::vector<Span> end();
  bool running() const { return compute_ != nullptr; }
  bool measures_tasks() const { return running() && of_ == Of::tasks; }
  // Of waits: nothing more is recorded; and, once the stream has passed all of them, the seconds from begin() to the
  // last wait's start in which it waited for nobody.
  void stop() { compute_ = nullptr; }
  double seconds_between_waits();

  // The task of the work that comes next.
  void enter(int task) { task_ = task; }
  // Measures the task itself, in the compute stream.
  std::optional<Scope> measure_task() { return measure(*compute_, {}, {}); }
  // Measures a collective of it; the names must live longer than the timeline.
  std::optional<Scope> measure(Stream& stream, std::string_view collective, std::string_view group);
  // Measures a wait of the compute stream for a collective in another stream.
  std::optional<Scope> measure_wait(Stream& stream, std::string_view group) {
    if (of_ == Of::tasks) return {};
    return measure(stream, "wait", group);
  }

 private:
  struct Entry {
    Stream* stream;
    Span span;
    TimeMark start, end;
  };

  Stream* compute_ = nullptr;
  Of of_ = Of::tasks;
  TimeMark start_;
  std::deque<Entry> entries_;  // whose places stay; the first `used_`: since begin()
  std::size_t used_ = 0;
  int task_ = -1;
};

}  // namespace forge
