#include "comm/roll_call.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <sstream>
#include <utility>

namespace forge {

namespace {

constexpr int fan_out = 8;
constexpr double patience = 0.4;        // for the first answer of a part's first rank
constexpr double between = 0.1;         // letters to whoever asked
constexpr double least = 0.4;           // of a call: what two ranks need to hear of each other's
constexpr double far_away = 1e9;        // more than any deadline; infinity is no number to send
constexpr double step_of_delay = 0.35;  // longer than a call needs to reach all

// 0 for the first rank, then for the middle one, for those at a quarter and three quarters, and so on: should the first
// ranks be lost together, with their node, others are near that stand elsewhere.
double delay_of(int rank, int size) {
  if (rank == 0) return 0;
  int level = 1;
  for (auto step = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size)) / 2); rank % step != 0; step /= 2)
    ++level;
  return step_of_delay * std::min(level, 5);
}

}  // namespace

RollCall::RollCall(int rank, int size, Mail& mail)
    : rank_(rank), size_(size), mail_(mail), delay_(delay_of(rank, size)) {}

void RollCall::Call::add(const std::string& doing, const RankSet& ranks_doing) {
  answers[doing].add(ranks_doing);
  heard.add(ranks_doing);
  changed = true;
}

std::optional<RollCall::Outcome> RollCall::turn(double now, const RankStatus& own) {
  while (const auto letter = mail_.receive()) take(*letter, now, own);
  if (own.remaining <= 0 && !calls_.contains(rank_) && now >= std::max(now + own.remaining, quiet_until_) + delay_)
    start(now, own);
  for (auto& [root, call] : calls_) proceed(root, call, now);
  return concluded(now);
}

// "call ROOT NUMBER BEGIN END", "wait ROOT NUMBER SECONDS", or "answer ROOT NUMBER REMAINING" with lines
// "RANKS<tab>DOING" behind it.
void RollCall::take(const Mail::Letter& letter, double now, const RankStatus& own) {
  std::istringstream in(letter.text);
  std::string kind;
  int root = 0;
  std::int64_t number = 0;
  in >> kind >> root >> number;
  if (kind == "call") {
    int begin = 0, end = 0;
    in >> begin >> end;
    return take_call(root, number, letter.from, begin, end, now, own);
  }
  const auto found = calls_.find(root);
  if (found == calls_.end() || found->second.number != number) return;
  Call& call = found->second;
  double seconds = 0;
  in >> seconds;
  if (kind == "wait") return wait(root, call, now, seconds);
  call.remaining = std::max(call.remaining, seconds);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    const auto tab = line.find('\t');
    call.add(line.substr(tab + 1), RankSet::from_code(line.substr(0, tab)));
  }
}

RollCall::Call RollCall::begun(std::int64_t number, double now, const RankStatus& own) const {
  Call call;
  call.number = number;
  call.started = now;
  call.remaining = std::clamp(own.remaining, 0.0, far_away);
  RankSet self;
  self.add(rank_);
  call.add(own.doing, self);
  return call;
}

void RollCall::take_call(int root, std::int64_t number, int from, int begin, int end, double now,
                         const RankStatus& own) {
  quiet_until_ = std::max(quiet_until_, now + longest + 1);
  if (root < rank_) calls_.erase(rank_);
  Call& call = calls_[root];
  if (number < call.number) return;
  if (number > call.number) call = begun(number, now, own);
  call.asked_by.add(from);
  call.changed = true;
  call.ranks = std::max(call.ranks, end - begin);
  if (end <= call.covered) return;
  call.covered = end;
  hand_on(root, call, begin + 1, end, now);
}

void RollCall::start(double now, const RankStatus& own) {
  Call& call = calls_[rank_] = begun(++calls_made_, now, own);
  call.ranks = call.covered = size_;
  hand_on(rank_, call, 1, size_, now);
}

void RollCall::hand_on(int root, Call& call, int begin, int end, double now) {
  const int count = end - begin, parts = std::min(fan_out, count);
  for (int p = 0; p < parts; ++p) {
    const Part part{begin + static_cast<int>(std::int64_t{count} * p / parts),
                    begin + static_cast<int>(std::int64_t{count} * (p + 1) / parts), now};
    call.parts.push_back(part);
    mail_.send(rank_at(root, part.begin), "call " + std::to_string(root) + " " + std::to_string(call.number) + " " +
                                              std::to_string(part.begin) + " " + std::to_string(part.end));
  }
}

void RollCall::proceed(int root, Call& call, double now) {
  if (now - call.started > longest + 1) return;
  for (std::size_t p = 0; p < call.parts.size(); ++p) {
    const Part part = call.parts[p];
    if (part.passed_over || now - part.asked < patience || call.heard.contains(rank_at(root, part.begin))) continue;
    call.parts[p].passed_over = true;
    hand_on(root, call, part.begin + 1, part.end, now);
  }
  if (root == rank_ || !call.changed) return;
  if (call.heard.count() < call.ranks && now - call.sent < between) return;
  std::ostringstream text;
  text << "answer " << root << ' ' << call.number << ' ' << call.remaining << '\n';
  for (const auto& [doing, ranks] : call.answers) text << ranks.code() << '\t' << doing << '\n';
  for (const auto& [begin, end] : call.asked_by.ranges())
    for (int asker = begin; asker < end; ++asker) mail_.send(asker, text.str());
  call.sent = now;
  call.changed = false;
}

void RollCall::wait(int root, Call& call, double now, double seconds) {
  if (std::exchange(call.told_to_wait, true)) return;
  quiet_until_ = std::max(quiet_until_, now + seconds);
  for (const Part& part : call.parts)
    mail_.send(rank_at(root, part.begin),
               "wait " + std::to_string(root) + " " + std::to_string(call.number) + " " + std::to_string(seconds));
}

std::optional<RollCall::Outcome> RollCall::concluded(double now) {
  const auto found = calls_.find(rank_);
  if (found == calls_.end()) return {};
  Call& call = found->second;
  const double lasted = now - call.started;
  Outcome outcome{call.answers, call.heard.others(size_)};
  if (size_ > 1 && lasted < (outcome.silent.empty() ? least : longest)) return {};
  const bool goes_on = outcome.silent.empty() && call.remaining > 0;
  if (goes_on) wait(rank_, call, now, std::max(call.remaining, least));
  calls_.erase(found);
  return goes_on ? std::nullopt : std::optional(std::move(outcome));
}

}  // namespace forge
