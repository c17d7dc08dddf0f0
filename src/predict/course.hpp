#pragma once

#include <cstddef>
#include <vector>

#include "predict/simulation.hpp"

namespace forge {

// How fast an operation of the simulation goes on.
struct Pace {
  double computing = 0, other = 0;  // speeds of its computation, and of its latencies and wires
  double granted = 1;               // of its wire besides: the part that its rivals leave
  bool rival = false;               // whether another one runs that takes a link of its
  std::size_t part = 0;             // at whose end it is looked at again: with a rival that it is at, else the last
  bool operator==(const Pace&) const = default;
};

// An operation's way through its parts: of each wire the computation before it, its latency and its seconds; then the
// computation behind all.
class Course {
 public:
  Course(const Instruction& of, bool shares_links);

  bool is_done() const { return part_ == parts(); }
  // The links that it takes, a bit each.
  unsigned links() const { return links_; }
  // From now on; whether that is new.
  bool set_pace(double computing, double other, bool rival);
  // Seconds from `start`, or from the last call, to the time at which it is looked at again.
  double seconds_to_look() const;
  void begin(double now) { since_ = now; }
  void advance(double now);
  // Ends the parts up to the one that the pace is about, whatever rounding has left of them.
  void reach_part();

  // Whether it is at a wire, and the share of a link that the wire needs to be as fast as alone.
  bool is_wire() const { return part_ % 3 == 2; }
  double use_of(std::size_t link) const { return wire_at()->links[link] / wire_at()->seconds; }
  void grant(double speed) { granted_ = speed; }

 private:
  std::size_t parts() const { return 3 * (wires_ ? wires_->size() : 0) + 1; }
  const Wire* wire_at() const { return part_ + 1 < parts() ? &(*wires_)[part_ / 3] : nullptr; }
  bool computes() const { return part_ % 3 == 0; }
  double speed() const { return computes() ? pace_.computing : is_wire() ? pace_.other * granted_ : pace_.other; }
  void next_part();
  void enter_part();
  void work_off(double seconds);

  const Wires* wires_;
  std::size_t part_ = 0;
  unsigned links_ = 0;
  double left_ = 0;                   // seconds of the part, alone
  double computing_ = 0, other_ = 0;  // of it and the parts behind it
  double behind_ = 0;                 // of the last part
  double granted_ = 1;
  double since_ = 0;
  Pace pace_;
};

// Shares the links of a rank among the wires that are under way: all get faster together until a link is full; those
// that take it stay, and the others go on, up to the speed that they have alone.
void share_links(std::vector<Course*>& wires);

}  // namespace forge
