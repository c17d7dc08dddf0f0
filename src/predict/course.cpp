#include "predict/course.hpp"

#include <algorithm>
#include <utility>

namespace forge {

Course::Course(const Instruction& of, bool shares_links) : wires_(of.wires.get()) {
  double before = 0;
  if (wires_)
    for (const Wire& wire : *wires_) {
      before += wire.before;
      other_ += wire.latency + wire.seconds;
      for (std::size_t l = 0; l < wire.links.size(); ++l)
        if (shares_links && wire.links[l] > 0) links_ |= 1u << l;
    }
  computing_ = std::max(before, of.seconds - other_);
  behind_ = computing_ - before;
  enter_part();
}

bool Course::set_pace(double computing, double other, bool rival) {
  if (!rival) granted_ = 1;
  const Pace pace{computing, other, granted_, rival, rival ? part_ : parts() - 1};
  const bool is_new = pace != pace_;
  pace_ = pace;
  return is_new;
}

double Course::seconds_to_look() const {
  return pace_.rival ? left_ / speed() : computing_ / pace_.computing + other_ / pace_.other;
}

void Course::advance(double now) {
  double passed = now - std::exchange(since_, now);
  while (passed > 0 && !is_done()) {
    const double whole = left_ / speed();
    if (passed < whole || part_ == pace_.part) return work_off(passed * speed());
    passed -= whole;
    next_part();
  }
}

void Course::reach_part() {
  while (!is_done() && part_ <= pace_.part) next_part();
}

void Course::next_part() {
  work_off(left_);
  ++part_;
  enter_part();
}

// Parts that take no time are none.
void Course::enter_part() {
  for (; !is_done(); ++part_) {
    const Wire* wire = wire_at();
    left_ = !wire ? behind_ : computes() ? wire->before : is_wire() ? wire->seconds : wire->latency;
    if (left_ > 0) return;
  }
}

void Course::work_off(double seconds) {
  left_ = std::max(0.0, left_ - seconds);
  double& sum = computes() ? computing_ : other_;
  sum = std::max(0.0, sum - seconds);
}

void share_links(std::vector<Course*>& wires) {
  LinkSeconds room;
  room.fill(1);
  while (!wires.empty()) {
    double speed = 1;
    std::size_t tight = room.size();
    for (std::size_t l = 0; l < room.size(); ++l) {
      double used = 0;
      for (const Course* wire : wires) used += wire->use_of(l);
      if (used * speed <= room[l]) continue;
      speed = room[l] / used;
      tight = l;
    }
    const auto stays = [&](const Course* wire) { return tight == room.size() || wire->use_of(tight) > 0; };
    const auto first = std::partition(wires.begin(), wires.end(), [&](const Course* wire) { return !stays(wire); });
    for (auto wire = first; wire != wires.end(); ++wire) {
      (*wire)->grant(speed);
      for (std::size_t l = 0; l < room.size(); ++l) room[l] = std::max(0.0, room[l] - speed * (*wire)->use_of(l));
    }
    wires.erase(first, wires.end());
  }
}

}  // namespace forge
