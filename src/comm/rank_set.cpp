#include "comm/rank_set.hpp"

#include <algorithm>
#include <cstdint>
#include <sstream>

namespace forge {

namespace {

std::string joined(const std::map<int, int>& ranges, const char* separator, const char* to) {
  std::string text;
  for (const auto& [begin, end] : ranges) {
    text += (text.empty() ? "" : separator) + std::to_string(begin);
    if (end - begin > 1) text += to + std::to_string(end - 1);
  }
  return text;
}

}  // namespace

void RankSet::add(int begin, int end) {
  if (begin >= end) return;
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
  while (at != ranges_.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = ranges_.erase(at);
  }
  ranges_[begin] = end;
}

void RankSet::add(const RankSet& other) {
  for (const auto& [begin, end] : other.ranges_) add(begin, end);
}

bool RankSet::contains(int rank) const {
  const auto at = ranges_.upper_bound(rank);
  return at != ranges_.begin() && std::prev(at)->second > rank;
}

std::int64_t RankSet::count() const {
  std::int64_t n = 0;
  for (const auto& [begin, end] : ranges_) n += end - begin;
  return n;
}

RankSet RankSet::others(int size) const {
  RankSet rest;
  int next = 0;
  for (const auto& [begin, end] : ranges_) {
    rest.add(next, std::min(begin, size));
    next = end;
  }
  rest.add(next, size);
  return rest;
}

std::string RankSet::text() const {
  return joined(ranges_, ", ", " to ");
}

std::string RankSet::code() const {
  return joined(ranges_, ",", "-");
}

RankSet RankSet::from_code(const std::string& code) {
  RankSet set;
  std::istringstream in(code);
  for (int begin = 0; in >> begin;) {
    int end = begin;
    if (in.peek() == '-') in.ignore() >> end;
    set.add(begin, end + 1);
    in.ignore();  // the comma
  }
  return set;
}

}  // namespace forge
