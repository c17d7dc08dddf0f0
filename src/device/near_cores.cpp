#include "device/near_cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

namespace forge {

namespace {

// The part of a list that is the i-th of k: of each run of consecutive numbers, so that the two threads of a core,
// whose numbers stand in two runs, fall to one rank.
Cores part_of(const Cores& list, std::size_t i, std::size_t k) {
  std::vector<std::pair<std::size_t, std::size_t>> runs;  // positions: first and end
  for (std::size_t p = 0; p < list.size(); ++p) {
    if (p == 0 || list[p] != list[p - 1] + 1) runs.emplace_back(p, p);
    runs.back().second = p + 1;
  }
  const auto is_short = [k](const auto& run) { return run.second - run.first < k; };
  if (std::any_of(runs.begin(), runs.end(), is_short)) runs = {{0, list.size()}};
  Cores part;
  for (const auto& [first, end] : runs)
    for (std::size_t p = first + (end - first) * i / k; p < first + (end - first) * (i + 1) / k; ++p)
      part.push_back(list[p]);
  return part;
}

}  // namespace

Cores cores_from(const std::string& list) {
  std::set<int> cores;
  const char *at = list.data(), *const end = at + list.size();
  while (at != end) {
    int first = 0, last = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc() || first < 0) return {};
    last = first;
    if (read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || last < first || last >= CPU_SETSIZE) return {};
    for (int core = first; core <= last; ++core) cores.insert(core);
    at = read.ptr;
    if (at != end && *at++ != ',') return {};
  }
  return {cores.begin(), cores.end()};
}

std::string list_of(const Cores& cores) {
  std::string text;
  for (std::size_t p = 0; p < cores.size(); ++p) {
    const std::size_t first = p;
    while (p + 1 < cores.size() && cores[p + 1] == cores[p] + 1) ++p;
    text += (text.empty() ? "" : ",") + std::to_string(cores[first]);
    if (p > first) text += "-" + std::to_string(cores[p]);
  }
  return text;
}

Cores own_cores() {
  cpu_set_t set;
  Cores cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

Cores cores_near(const std::string& address, const std::string& devices) {
  std::string folder = address;  // CUDA writes capital letters
  std::transform(folder.begin(), folder.end(), folder.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string node, list;
  std::ifstream(devices + "/" + folder + "/numa_node") >> node;
  if (node.empty() || node[0] == '-') return {};  // -1: not known, and the list would have every core
  std::ifstream(devices + "/" + folder + "/local_cpulist") >> list;
  return cores_from(list);
}

bool use_cores(const Cores& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

Cores shared_out(const std::vector<RankCores>& ranks, std::size_t rank) {
  std::set<int> all;
  for (const RankCores& r : ranks) all.insert(r.own.begin(), r.own.end());
  Cores mine;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Cores near;
    std::set_intersection(all.begin(), all.end(), ranks[i].near.begin(), ranks[i].near.end(), std::back_inserter(near));
    std::size_t before = 0, sharing = 0;
    for (std::size_t j = 0; j < ranks.size(); ++j)
      if (ranks[j].near == ranks[i].near) before += j < i, ++sharing;
    if (near.size() < sharing || near.size() * ranks.size() < all.size() * sharing) return ranks[rank].own;
    if (i == rank) mine = part_of(near, before, sharing);
  }
  return mine;
}

}  // namespace forge
