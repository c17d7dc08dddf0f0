#include "comm/agreement.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "core/random.hpp"

namespace forge {

namespace {

// The first line of `value` that `other` hasn't; "nothing" where it has all of them.
std::string first_difference(const std::string& value, const std::string& other) {
  std::set<std::string> others;
  std::string line;
  for (std::istringstream lines(other); std::getline(lines, line);) others.insert(line);
  for (std::istringstream lines(value); std::getline(lines, line);)
    if (!others.contains(line)) return line;
  return "nothing";
}

// " and 3 more".
std::string more_ranks(std::size_t more) {
  return more == 0 ? "" : " and " + std::to_string(more) + " more";
}

// The first rank of those that have what most ranks have.
int rank_of_most(const std::vector<std::int64_t>& hashes) {
  std::map<std::int64_t, int> count;
  for (const std::int64_t hash : hashes) ++count[hash];
  const auto more = [&](std::int64_t a, std::int64_t b) { return count[a] < count[b]; };
  return static_cast<int>(std::max_element(hashes.begin(), hashes.end(), more) - hashes.begin());
}

// The first rank alone knows the hashes of all.
[[noreturn]] void refuse(const CommonFact& fact, Communicator& all, const World& world) {
  const std::vector<std::int64_t> hashes = all.collect_host(static_cast<std::int64_t>(hash_of(fact.value)), 0);
  std::string who;
  std::array<std::int64_t, 2> chosen{};  // an odd rank, one of most
  if (!hashes.empty()) {
    const int right = rank_of_most(hashes);
    std::vector<int> odd;
    for (std::size_t r = 0; r < hashes.size(); ++r)
      if (hashes[r] != hashes[static_cast<std::size_t>(right)]) odd.push_back(static_cast<int>(r));
    chosen = {odd.front(), right};
    who = fact.name + " of " + ranks_text(odd, &world) + " differs from that of rank " + std::to_string(right) +
          more_ranks(hashes.size() - odd.size() - 1);
  }
  all.broadcast_host(who, 0);
  all.max_host(chosen);
  std::string theirs = fact.value, most = fact.value;
  all.broadcast_host(theirs, static_cast<int>(chosen[0]));
  all.broadcast_host(most, static_cast<int>(chosen[1]));
  throw BadInput(who + ": \"" + first_difference(theirs, most) + "\" there, \"" + first_difference(most, theirs) +
                 "\" here; " + fact.rule);
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks, const World* world) {
  constexpr std::size_t most = 4;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), most); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > most) text += " and " + std::to_string(ranks.size() - most) + " more";
  const std::string node = world ? world->node_name(ranks.front()) : "";
  return node.empty() ? text : text + (ranks.size() == 1 ? " on " : ", the first on ") + node;
}

void agree_on(const std::vector<CommonFact>& facts, const World& world) {
  if (world.size() == 1) return;
  const auto all = world.make_world();
  std::vector<std::int64_t> most;  // of hashes, and of their complements: where all agree, these still are
  for (const CommonFact& fact : facts) most.push_back(static_cast<std::int64_t>(hash_of(fact.value)));
  for (std::size_t i = 0; i < facts.size(); ++i) most.push_back(~most[i]);
  all->max_host(most);
  for (std::size_t i = 0; i < facts.size(); ++i)
    if (most[i] != ~most[facts.size() + i]) refuse(facts[i], *all, world);
}

}  // namespace forge
