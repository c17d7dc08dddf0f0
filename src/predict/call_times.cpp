#include "predict/call_times.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "core/median.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"

namespace forge {

namespace {

using Clock = std::chrono::steady_clock;

// Bytes of a call's operands in a group of so many ranks.
struct Operands {
  std::size_t in = 0, out = 0;
  void take(const Sent& call, std::int64_t ranks) {
    const bool gathers = call.collective == Collective::all_gather,
               exchanges = call.collective == Collective::all_to_all,
               scatters = call.collective == Collective::reduce_scatter, sends = call.collective == Collective::send;
    const std::size_t part = to_size(call.count) * size_of(call.type), whole = part * to_size(ranks);
    in = std::max(in, exchanges || scatters ? whole : part);
    out = std::max(out, gathers || exchanges ? whole : scatters || sends ? part : 0);
  }
};

// Sends go around the group.
void make_call(Communicator& group, Stream& stream, const Sent& call, std::byte* in, std::byte* out) {
  const int n = group.size(), rank = group.rank();
  switch (call.collective) {
    case Collective::all_reduce:
      return group.all_reduce(stream, in, call.count, call.type);
    case Collective::all_gather:
      return group.all_gather(stream, in, out, call.count, call.type);
    case Collective::reduce_scatter:
      return group.reduce_scatter(stream, in, out, call.count, call.type);
    case Collective::broadcast:
      return group.broadcast(stream, in, call.count, call.type, 0);
    case Collective::all_to_all:
      return group.all_to_all(stream, in, out, call.count, call.type);
    case Collective::send:
      group.group_begin();
      group.send(stream, in, call.count, call.type, (rank + 1) % n);
      group.receive(stream, out, call.count, call.type, (rank + n - 1) % n);
      return group.group_end(stream);
  }
}

// The slowest rank's median. On a GPU calls follow each other for two milliseconds, so that the host's part is small.
double seconds_of_all(Communicator& group, Stream& stream, const Sent& call, std::byte* in, std::byte* out) {
  std::vector<double> times;
  std::int64_t calls = 1;
  for (int i = 0; i < 12; ++i) {
    group.barrier();
    const auto start = Clock::now();
    for (std::int64_t k = 0; k < calls; ++k) make_call(group, stream, call, in, out);
    stream.synchronize();
    const std::chrono::duration<double> passed = Clock::now() - start;
    if (i > 1) times.push_back(passed.count() / static_cast<double>(calls));
    if (i != 1 || !stream.native()) continue;
    calls = static_cast<std::int64_t>(std::clamp(2e-3 / passed.count(), 1.0, 100.0));
    group.min_host({&calls, 1});
  }
  double seconds = median(std::move(times));
  group.max_host({&seconds, 1});
  return seconds;
}

// A call of doubles with which a rank of `n` sends so many bytes.
Sent call_of_bytes(Collective collective, std::int64_t bytes, std::int64_t n) {
  const std::int64_t count = bytes / 8;
  const bool whole = collective == Collective::broadcast || collective == Collective::send;
  const std::int64_t taken = collective == Collective::all_reduce ? count * n / (2 * (n - 1))
                             : whole                              ? count
                                                                  : count / (n - 1);
  return {Group::scalars, collective, std::max<std::int64_t>(1, taken), DType::f64};
}

// The calls that any rank of the group has for it.
std::vector<Sent> calls_in(Communicator& ranks, Group group, const std::vector<Sent>& calls) {
  if (ranks.size() == 1) return {};
  std::ostringstream text;
  for (const Sent& call : calls)
    if (call.group == group)
      text << static_cast<int>(call.collective) << " " << static_cast<int>(call.type) << " " << call.count << " ";
  std::set<std::tuple<int, int, std::int64_t>> all;
  for (const std::string& others : ranks.gather_host(text.str())) {
    std::istringstream in(others);
    for (std::tuple<int, int, std::int64_t> c; in >> std::get<0>(c) >> std::get<1>(c) >> std::get<2>(c);) all.insert(c);
  }
  std::vector<Sent> list;
  for (const auto& [collective, type, count] : all)
    list.push_back({group, static_cast<Collective>(collective), count, static_cast<DType>(type)});
  return list;
}

std::string text_of(const std::vector<CallTime>& times) {
  std::ostringstream text;
  text.precision(17);
  for (const auto& [c, p, seconds] : times)
    text << static_cast<int>(c.group) << " " << static_cast<int>(c.collective) << " " << static_cast<int>(c.type) << " "
         << c.count << " " << p.ranks << " " << p.nodes << " " << p.near << " " << p.groups << " " << seconds << " ";
  return text.str();
}

// Of equal calls of groups that lie alike the slowest.
class SlowestCalls {
 public:
  void add(const std::string& times) {
    std::istringstream in(times);
    for (std::array<std::int64_t, 8> key{};;) {
      for (std::int64_t& number : key) in >> number;
      double seconds = 0;
      if (!(in >> seconds)) break;
      slowest_[key] = std::max(slowest_[key], seconds);
    }
  }
  std::vector<CallTime> list() const {
    std::vector<CallTime> list;
    for (const auto& [k, seconds] : slowest_)
      list.push_back({{static_cast<Group>(k[0]), static_cast<Collective>(k[1]), k[3], static_cast<DType>(k[2])},
                      {static_cast<int>(k[4]), static_cast<int>(k[5]), static_cast<int>(k[6]), static_cast<int>(k[7])},
                      seconds});
    return list;
  }

 private:
  std::map<std::array<std::int64_t, 8>, double> slowest_;
};

// What the groups' first ranks have measured, on every rank: the first rank puts it together.
std::vector<CallTime> slowest_of_all(Communicator& world, const std::vector<CallTime>& own) {
  SlowestCalls slowest;
  world.collect_host(text_of(own), 0, [&](const std::string& times) { slowest.add(times); });
  std::string all = text_of(slowest.list());
  world.broadcast_host(all, 0);
  slowest.add(all);
  return slowest.list();
}

}  // namespace

std::vector<std::pair<Collective, ProtocolRates>> measure_collectives(Communicator& ranks, Heartbeat& heartbeat) {
  std::vector<std::pair<Collective, ProtocolRates>> list;
  if (ranks.size() == 1) return list;
  constexpr std::int64_t little = 256, much = 4 << 20;
  Stream stream;
  const Buffer in(2 * much), out(2 * much);
  fill_zero(stream, in.data(), in.bytes());
  std::vector<int> sizes;
  for (int n = 2; n < ranks.size(); n *= 2) sizes.push_back(n);
  sizes.push_back(ranks.size());
  for (int c = 0; c < collective_count; ++c) {
    const auto collective = static_cast<Collective>(c);
    std::vector<double> latencies, bandwidths;
    for (const int n : sizes) {
      const auto group = ranks.split(ranks.rank() < n ? 0 : -1, ranks.rank());
      double measured[2] = {0, 0};
      if (group) {
        measured[0] = seconds_of_all(*group, stream, call_of_bytes(collective, little, n), in.data(), out.data());
        measured[1] = seconds_of_all(*group, stream, call_of_bytes(collective, much, n), in.data(), out.data());
      }
      ranks.max_host({measured, 2});
      latencies.push_back(measured[0]);
      bandwidths.push_back(static_cast<double>(much) / std::max(measured[1] - measured[0], 1e-9));
      heartbeat.beat();
    }
    ProtocolRates rates;
    const double last = sizes.back(), first = sizes.front();
    rates.per_rank = last > first ? std::max(0.0, (latencies.back() - latencies.front()) / (last - first)) : 0;
    rates.latency = std::max(0.0, latencies.front() - rates.per_rank * first);
    rates.bandwidth = median(bandwidths);
    list.emplace_back(collective, rates);
  }
  return list;
}

std::vector<CallTime> measure_calls(Mesh& mesh, const std::vector<Sent>& calls,
                                    const std::array<Placement, group_count>& places, Heartbeat& heartbeat) {
  std::vector<std::vector<Sent>> lists;
  Operands most;
  for (int g = 0; g < group_count; ++g) {
    Communicator& ranks = mesh.of(static_cast<Group>(g));
    lists.push_back(calls_in(ranks, static_cast<Group>(g), calls));
    for (const Sent& call : lists.back()) most.take(call, ranks.size());
  }
  Stream stream;
  const Buffer in(std::max<std::size_t>(most.in, 1)), out(std::max<std::size_t>(most.out, 1));
  fill_zero(stream, in.data(), in.bytes());
  std::vector<CallTime> own;
  for (std::size_t g = 0; g < lists.size(); ++g) {
    Communicator& ranks = mesh.of(static_cast<Group>(g));
    auto rounds = static_cast<std::int64_t>(lists[g].size());  // stages may have different ones
    mesh.world().max_host({&rounds, 1});
    for (std::size_t i = 0; i < to_size(rounds); ++i) {
      mesh.world().barrier();
      heartbeat.beat();
      if (i >= lists[g].size()) continue;
      const double seconds = seconds_of_all(ranks, stream, lists[g][i], in.data(), out.data());
      if (ranks.rank() == 0) own.push_back({lists[g][i], places[g], seconds});
    }
  }
  return slowest_of_all(mesh.world(), own);
}

}  // namespace forge
