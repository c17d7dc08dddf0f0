#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/mail.hpp"
#include "comm/rank_set.hpp"

namespace forge {

// The work of a rank, and the seconds left to its deadline: 0 or less, it was missed.
struct RankStatus {
  std::string doing;
  double remaining = std::numeric_limits<double>::infinity();
};

// Finds the silent ranks when a job hangs. Each rank takes a turn every few hundredths of a second, in its own thread,
// so that it answers whatever its other threads wait for. A rank that missed its deadline calls all others: it hands
// parts of the ranks on to their first ones, those do the same, and answers come back the same way, merged, so that a
// rank sends O(log size) letters and holds ranges of ranks. Where the first of a part doesn't answer, its caller hands
// on the rest of the part itself. So no rank is needed for the others, and none needs the others' clocks.
//
// The call's outcome: somebody is silent, or all who answered have missed their deadlines, and the job hangs; or one
// still has time (it writes a long checkpoint, which the others wait for), and all wait until that runs out.
class RollCall {
 public:
  struct Outcome {
    std::map<std::string, RankSet> answers;  // by RankStatus::doing
    RankSet silent;
  };

  RollCall(int rank, int size, Mail& mail);

  // now: seconds of this rank's steady clock. Returns an outcome where the job hangs and it is this rank that says so:
  // the lowest one of those that noticed, as far as they hear of each other. The turns may go on behind that.
  std::optional<Outcome> turn(double now, const RankStatus& own);

  // The longest time of a call in which a rank is silent: enough for all others, whatever burdens the machines.
  static constexpr double longest = 2.5;

 private:
  // A range of places behind the caller's, counted from its own around, and the time when its first one was asked.
  struct Part {
    int begin, end;
    double asked;
    bool passed_over = false;
  };
  struct Call {
    std::int64_t number = -1;
    double started = 0, sent = 0, remaining = 0;
    RankSet asked_by, heard;
    std::map<std::string, RankSet> answers;
    std::vector<Part> parts;
    int ranks = 0, covered = 0;  // it asks for these; the end of the places handed on
    bool changed = false, told_to_wait = false;

    void add(const std::string& doing, const RankSet& ranks_doing);
  };

  int rank_at(int root, int place) const { return static_cast<int>((std::int64_t{root} + place) % size_); }
  void take(const Mail::Letter& letter, double now, const RankStatus& own);
  void take_call(int root, std::int64_t number, int from, int begin, int end, double now, const RankStatus& own);
  // A new call with this rank's own answer.
  Call begun(std::int64_t number, double now, const RankStatus& own) const;
  void start(double now, const RankStatus& own);
  void hand_on(int root, Call& call, int begin, int end, double now);
  void proceed(int root, Call& call, double now);
  void wait(int root, Call& call, double now, double seconds);
  std::optional<Outcome> concluded(double now);

  int rank_, size_;
  Mail& mail_;
  double delay_;  // behind its deadline, so that a few ranks call first, and most need not
  double quiet_until_ = 0;
  std::int64_t calls_made_ = 0;
  std::map<int, Call> calls_;  // by the rank that calls
};

}  // namespace forge
