#include "app/checks.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "comm/agreement.hpp"
#include "comm/collected.hpp"
#include "core/bytes.hpp"
#include "core/median.hpp"

namespace forge {

namespace {

constexpr const char* words[] = {"ok", "low", "slow", "WRONG", "-"};

// The value that most of these ranks have; of several the first.
const std::string& most_frequent(const std::vector<int>& ranks, const std::vector<std::string>& values) {
  std::map<std::string, int> count;
  for (const int rank : ranks) ++count[values[to_size(rank)]];
  const auto more = [&](int a, int b) { return count[values[to_size(a)]] < count[values[to_size(b)]]; };
  return values[to_size(*std::max_element(ranks.begin(), ranks.end(), more))];
}

}  // namespace

Checks::Checks(const World& world, double slow) : world_(world), ranks_(world.make_world()), slow_(slow) {}

void Checks::print(const std::string& name, Verdict verdict, const std::string& text) {
  made_ += verdict != Verdict::untried;
  failed_ += verdict == Verdict::slow || verdict == Verdict::wrong;
  std::printf("  %-26s %-6s %s\n", name.c_str(), words[static_cast<int>(verdict)], text.c_str());
  std::fflush(stdout);
}

void Checks::blame(const std::vector<int>& ranks, bool blames) {
  if (blames) odd_.insert(odd_.end(), ranks.begin(), ranks.end());
}

void Checks::add(const std::string& name, Verdict verdict, const std::string& text) {
  if (world_.rank() == 0) print(name, verdict, text);
}

void Checks::compare(const std::string& name, double seconds, const std::function<std::string(double median)>& text,
                     bool blames) {
  const std::vector<double> all = collected(*ranks_, seconds);
  heartbeat().beat();
  if (world_.rank() != 0) return;
  std::vector<double> taking_part;
  std::ranges::copy_if(all, std::back_inserter(taking_part), [](double s) { return s > 0; });
  if (taking_part.empty()) return print(name, Verdict::untried, "no rank has it");
  const double middle = lower_median(taking_part), most = *std::ranges::max_element(taking_part);
  std::vector<int> slow;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r] > slow_ * middle) slow.push_back(static_cast<int>(r));
  blame(slow, blames);
  std::string line = text(middle);
  if (taking_part.size() > 1)
    line += formatted(", the median of %zu; the slowest takes %.2f times as long", taking_part.size(), most / middle);
  print(name, slow.empty() ? Verdict::ok : Verdict::slow,
        slow.empty() ? line : line + ": " + ranks_text(slow, &world_));
}

void Checks::find(const std::string& name, Verdict verdict, const std::string& finding, const std::string& otherwise,
                  bool blames) {
  const std::vector<std::string> all = collected(*ranks_, finding);
  heartbeat().beat();
  if (world_.rank() != 0) return;
  constexpr std::size_t most = 3;
  std::vector<std::string> distinct;
  std::string line;
  for (const std::string& one : all) {
    if (one.empty() || std::ranges::find(distinct, one) != distinct.end()) continue;
    distinct.push_back(one);
    std::vector<int> ranks;
    for (std::size_t r = 0; r < all.size(); ++r)
      if (all[r] == one) ranks.push_back(static_cast<int>(r));
    blame(ranks, blames);
    if (distinct.size() <= most) line += (line.empty() ? "" : "; ") + ranks_text(ranks, &world_) + ": " + one;
  }
  if (distinct.size() > most) line += "; and " + std::to_string(distinct.size() - most) + " more";
  print(name, distinct.empty() ? Verdict::ok : verdict, distinct.empty() ? otherwise : line);
}

void Checks::agree(const std::string& name, Verdict verdict, const std::string& kind, const std::string& value,
                   const std::string& text, bool blames) {
  const std::vector<std::string> kinds = collected(*ranks_, kind), values = collected(*ranks_, value);
  heartbeat().beat();
  if (world_.rank() != 0) return;
  std::map<std::string, std::vector<int>> of_kind;
  for (std::size_t r = 0; r < kinds.size(); ++r) of_kind[kinds[r]].push_back(static_cast<int>(r));
  std::vector<int> odd;
  for (const auto& [_, ranks] : of_kind) {
    const std::string& right = most_frequent(ranks, values);
    std::ranges::copy_if(ranks, std::back_inserter(odd), [&](int r) { return values[to_size(r)] != right; });
  }
  blame(odd, blames);
  if (odd.empty()) return print(name, Verdict::ok, text);
  print(name, verdict,
        ranks_text(odd, &world_) + ": \"" + values[to_size(odd.front())] + "\", where most have \"" +
            most_frequent(of_kind[kinds[to_size(odd.front())]], values) + "\"");
}

std::vector<std::string> Checks::nodes_to_leave_out() {
  std::string text;
  std::set<std::string> seen;
  std::ranges::sort(odd_);
  for (const int rank : odd_)
    if (const std::string node = world_.node_name(rank); !node.empty() && seen.insert(node).second) text += node + "\n";
  ranks_->broadcast_host(text, 0);
  std::vector<std::string> nodes;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    nodes.push_back(text.substr(at, end - at));
  return nodes;
}

std::pair<std::int64_t, std::int64_t> Checks::failed_and_made() {
  std::int64_t counts[] = {failed_, made_};
  ranks_->max_host(counts);
  return {counts[0], counts[1]};
}

}  // namespace forge
