#include "predict/machine.hpp"

#include <algorithm>
#include <cmath>

#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// Where x lies in an ascending list: between elements i and i + 1, at a fraction of the way in logarithms.
struct Between {
  std::size_t i = 0;
  double fraction = 0;
};

Between find(const std::vector<double>& list, double x) {
  if (list.size() < 2 || x <= list.front()) return {};
  if (x >= list.back()) return {list.size() - 2, 1};
  const auto above = std::upper_bound(list.begin(), list.end(), x);
  const auto i = to_size(above - list.begin()) - 1;
  return {i, std::log(x / list[i]) / std::log(list[i + 1] / list[i])};
}

double interpolate(const std::vector<double>& at, const std::vector<double>& values, double x) {
  const Between b = find(at, x);
  const double low = values[b.i];
  return b.fraction > 0 ? low * std::pow(values[b.i + 1] / low, b.fraction) : low;
}

double table_rate(const ProductTable& table, ProductOf of, double m, double n, double k) {
  const std::vector<double>& rates = table.rates[to_size(of)].empty() ? table.rates[0] : table.rates[to_size(of)];
  const Between at[3] = {find(table.m, m), find(table.n, n), find(table.k, k)};
  double logarithm = 0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double weight = 1;
    std::size_t index[3];
    for (unsigned axis = 0; axis < 3; ++axis) {
      const bool above = (corner >> axis & 1u) != 0;
      weight *= above ? at[axis].fraction : 1 - at[axis].fraction;
      index[axis] = at[axis].i + (above ? 1 : 0);
    }
    if (weight > 0)
      logarithm += weight * std::log(rates[(index[0] * table.n.size() + index[1]) * table.k.size() + index[2]]);
  }
  return std::exp(logarithm);
}

double wave_seconds(const Machine& machine, const WaveRates& rates, double bytes, double m, double n, double k) {
  struct Tile {
    double rows, columns, fraction;
  };
  const Tile tiles[] = {{256, 128, rates.large},
                        {128, 256, rates.large},
                        {128, 128, rates.medium},
                        {128, 64, rates.small},
                        {64, 128, rates.small}};
  const double units = machine.units;
  double best = INFINITY;
  for (const Tile& tile : tiles) {
    const double waves = std::ceil(std::ceil(m / tile.rows) * std::ceil(n / tile.columns) / units);
    const double flops = 2 * tile.rows * tile.columns * k;
    best = std::min(best, waves * (flops / (rates.peak / units * tile.fraction) + rates.wave));
  }
  return std::max(best, bytes / (machine.memory_bandwidth * rates.memory_fraction));
}

// Bytes that a rank sends by the least that the operation needs, as sent_elements() of core/collectives.
double wire_bytes(const Sent& call, int ranks) {
  return static_cast<double>(sent_elements(call.collective, call.count, ranks)) *
         static_cast<double>(size_of(call.type));
}

// Bytes of the rank's own part: one of the ranks' equal parts of what is gathered, summed or exchanged.
double own_bytes(const Sent& call, int ranks) {
  const double sent = wire_bytes(call, ranks), others = ranks - 1;
  switch (call.collective) {
    case Collective::all_reduce:  // sends the other parts twice
      return sent / (2 * others);
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return sent / others;
    default:
      return 0;
  }
}

}  // namespace

bool Machine::has_rates(DType type) const {
  return compute[type == DType::f64 ? 0 : type == DType::f32 ? 1 : 2].known();
}

const ComputeRates& Machine::rates(DType type) const {
  const auto of = [&](DType t) -> const ComputeRates& {
    return compute[t == DType::f64 ? 0 : t == DType::f32 ? 1 : 2];
  };
  if (of(type).known()) return of(type);
  std::string legal;
  for (const DType other : {DType::f64, DType::f32, DType::bf16})
    if (of(other).known()) legal += (legal.empty() ? "" : " | ") + std::string(name_of(other));
  throw BadInput("machine " + name + ": no rates for products in " + std::string(name_of(type)) +
                 "; legal: train.precision = " + legal + ", or rates of its own in the machine's file");
}

double Machine::peak(DType type) const {
  const ComputeRates& r = rates(type);
  return r.waves.peak > 0 ? r.waves.peak : *std::max_element(r.table.rates[0].begin(), r.table.rates[0].end());
}

double clock_at(const Machine& machine, double fraction) {
  return machine.power.clocks.empty() ? 1 : interpolate(machine.power.fractions, machine.power.clocks, fraction);
}

double product_seconds(const Machine& machine, DType type, ProductOf of, double m, double n, double k, double count,
                       bool codes) {
  if (m <= 0 || n <= 0 || k <= 0 || count <= 0) return 0;
  const ComputeRates& rates = machine.rates(type);
  if (rates.waves.peak <= 0)
    return count * (rates.table.launch + 2 * m * n * k / table_rate(rates.table, of, m, n, k)) /
           (machine.program.product_fraction * machine.compute_speed * machine.clock);
  WaveRates waves = rates.waves;
  if (codes && rates.code_peak > 0) waves.peak = rates.code_peak;
  const auto element = static_cast<double>(size_of(type));
  const double bytes = (m * k + k * n) * (codes ? 1 : element) + m * n * element;
  return count * (waves.launch + wave_seconds(machine, waves, bytes, m, n, k)) /
         (machine.program.product_fraction * machine.compute_speed * machine.clock);
}

// Rows come in tiles of 128, as both kernels have them. Sums of weights are fp32, read and written.
std::optional<double> expert_seconds(const Machine& machine, DType type, std::string_view kernel, ProductOf of,
                                     double experts, double rows, double n, double k) {
  const auto& kernels = machine.rates(type).experts;
  const auto found = kernels.find(kernel);
  if (found == kernels.end() || !machine.program.is_forge()) return std::nullopt;
  const bool sums = of == ProductOf::weight_gradient;
  const double multiplied = sums ? rows : 128 * std::ceil(rows / 128);
  const double flops = 2 * experts * multiplied * n * k;
  const double bytes = experts * (rows * (n + k) * 2 + n * k * (sums ? 8 : 2));
  const double rate = interpolate(found->second.rows, found->second.rates[to_size(of)], rows);
  return std::max(flops / rate, bytes / machine.memory_bandwidth) / (machine.compute_speed * machine.clock);
}

double attention_seconds(const Machine& machine, DType type, std::string_view kernel, const AttentionWork& work) {
  if (work.flops <= 0) return 0;
  const auto& kernels = machine.rates(type).attention;
  const auto found = kernels.find(kernel);
  if (found == kernels.end())
    throw BadInput("machine " + machine.name + ": no rates of attention by " + std::string(kernel) + " in " +
                   std::string(name_of(type)));
  const AttentionRates& rates = found->second;
  double rate = interpolate(rates.tokens, work.backward ? rates.backward : rates.forward, work.tokens);
  if (!rates.columns.empty())
    rate *= interpolate(rates.columns, work.backward ? rates.backward_fraction : rates.forward_fraction, work.columns);
  rate *= machine.program.attention_fraction * machine.clock;
  return (machine.row_launch + work.flops / rate) / machine.compute_speed;
}

double row_seconds(const Machine& machine, double bytes, std::string_view name) {
  if (bytes <= 0) return 0;
  const bool is_forge = machine.program.is_forge();
  const auto own = is_forge ? machine.kernels.find(name) : machine.kernels.end();
  const double fraction = is_forge ? machine.row_fraction : program_row_fraction;
  const KernelRates rates =
      own != machine.kernels.end() ? own->second : KernelRates{machine.row_launch, machine.memory_bandwidth * fraction};
  return (rates.launch + bytes / rates.bandwidth) / machine.compute_speed;
}

namespace {

// Inside the nodes: as if the group were there alone, by the fastest protocol. A transfer between neighbours is in one
// or between two.
WireTime time_inside(const Machine& machine, const Sent& call, const Placement& place, double bytes) {
  const int near = std::min(place.near, place.ranks);
  if (near <= 1) return {};
  const double fraction = call.collective == Collective::all_to_all ? (near - 1.0) / (place.ranks - 1.0) : 1;
  WireTime best{INFINITY};
  double link = 0;  // bandwidth of the protocol that has most
  for (const ProtocolRates& p : machine.in_node[to_size(call.collective)]) {
    const WireTime time{p.latency + p.per_rank * near + (p.own > 0 ? own_bytes(call, place.ranks) / p.own : 0),
                        fraction * bytes / p.bandwidth};
    if (time.total() < best.total()) best = time;
    link = std::max(link, p.bandwidth);
  }
  require(link > 0, "a machine's file has rates of each collective");
  best.nvlink = fraction * bytes / link;
  return best;
}

WireTime time_between(const Machine& machine, const Sent& call, const Placement& place, double bytes) {
  if (machine.between_nodes.empty())
    throw BadInput("machine " + machine.name + " is one node of " + counted(machine.ranks_per_node, "rank") +
                   "; legal: a mesh of so many, or a machine with a network");
  std::vector<double> nodes, rate;
  for (const NodesRates& r : machine.between_nodes) {
    nodes.push_back(r.nodes);
    rate.push_back(r.bandwidth[to_size(call.collective)]);
  }
  // A ring enters and leaves each node once; of an exchange each rank's part for other nodes does.
  const int near = std::min(place.near, place.ranks);
  const double leaving = place.groups * (call.collective == Collective::all_to_all
                                             ? bytes * near * (place.ranks - near) / (place.ranks - 1.0)
                                         : call.collective == Collective::send ? bytes * near
                                                                               : bytes);
  // Rings of many ranks hide less of the latency of their steps, so that bytes are slower, too. A transfer has no ring.
  const double ranks = call.collective == Collective::send ? 2 : place.ranks;
  const double link = leaving / interpolate(nodes, rate, place.nodes);
  return {machine.network_latency + machine.network_per_rank * ranks,
          link + leaving * machine.network_per_rank_byte * ranks, 0, link};
}

}  // namespace

WireTime collective_time(const Machine& machine, const Sent& call, const Placement& place) {
  if (place.ranks <= 1 || call.times <= 0) return {};
  const double bytes = wire_bytes(call, place.ranks), calls = static_cast<double>(call.times) / machine.network_speed;
  WireTime time = time_inside(machine, call, place, bytes);
  if (place.nodes > 1) {
    const WireTime between = time_between(machine, call, place, bytes);
    const double total = std::max(time.total(), between.total()), seconds = std::max(time.seconds, between.seconds);
    time = {total - seconds, seconds, time.nvlink, between.nic};
  }
  return {calls * time.latency, calls * time.seconds, calls * time.nvlink, calls * time.nic};
}

}  // namespace forge
