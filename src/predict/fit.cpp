#include "predict/fit.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/to_size.hpp"
#include "predict/prediction.hpp"

namespace forge {

namespace {

constexpr double pull = 1e-4, difference = 0.02, longest_step = 0.7, last_step = 1e-6;
constexpr int iterations = 40;

using Logarithms = std::vector<double>;  // of factors
using Predictions = std::function<std::vector<double>(const Logarithms&)>;

// Solves the symmetric, positive definite system in place: its last column has the right side, and then the result.
void solve(std::vector<std::vector<double>>& rows) {
  const std::size_t n = rows.size();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = rows[r][i] / rows[i][i];
      for (std::size_t k = i; k <= n; ++k) rows[r][k] -= factor * rows[i][k];
    }
  for (std::size_t i = 0; i < n; ++i) rows[i][n] /= rows[i][i];
}

// Normal equations: (JᵀJ + pull) step = -(Jᵀr + pull x), r = log(predicted / measured).
Logarithms fit(std::size_t n, const std::vector<double>& measured, const Predictions& predicted) {
  Logarithms x(n);
  for (int i = 0; i < iterations; ++i) {
    const auto now = predicted(x);
    std::vector<std::vector<double>> slopes;
    for (std::size_t a = 0; a < n; ++a) {
      Logarithms there = x;
      there[a] += difference;
      slopes.push_back(predicted(there));
      for (std::size_t k = 0; k < now.size(); ++k) slopes[a][k] = std::log(slopes[a][k] / now[k]) / difference;
    }
    std::vector<std::vector<double>> rows(n, std::vector<double>(n + 1));
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b)
        for (std::size_t k = 0; k < now.size(); ++k) rows[a][b] += slopes[a][k] * slopes[b][k];
      for (std::size_t k = 0; k < now.size(); ++k) rows[a][n] -= slopes[a][k] * std::log(now[k] / measured[k]);
      rows[a][a] += pull;
      rows[a][n] -= pull * x[a];
    }
    solve(rows);
    double longest = 0;
    for (std::size_t a = 0; a < n; ++a) {
      const double step = std::clamp(rows[a][n], -longest_step, longest_step);
      x[a] += step;
      longest = std::max(longest, std::abs(step));
    }
    if (longest < last_step) break;
  }
  return x;
}

Machine with_speeds(Machine machine, const Logarithms& x) {
  machine.compute_speed *= std::exp(x[0]);
  machine.network_speed *= std::exp(x[1]);
  return machine;
}

std::vector<double> predicted_of(const Machine& machine, const std::vector<MeasuredRun>& runs) {
  std::vector<double> seconds;
  for (const MeasuredRun& run : runs) seconds.push_back(predict(machine, run.setup).seconds);
  return seconds;
}

// Latencies and rates inside nodes of each collective, then rates between them, then the network's latencies.
constexpr std::size_t network_rates = 2 * collective_count, network_latency = 3 * collective_count;

Machine with_links(Machine machine, const Logarithms& x) {
  for (std::size_t c = 0; c < collective_count; ++c) {
    for (ProtocolRates& rates : machine.in_node[c]) {
      rates.latency *= std::exp(x[2 * c]);
      rates.per_rank *= std::exp(x[2 * c]);
      rates.bandwidth *= std::exp(x[2 * c + 1]);
      rates.own *= std::exp(x[2 * c + 1]);
    }
    for (NodesRates& rates : machine.between_nodes) rates.bandwidth[c] *= std::exp(x[network_rates + c]);
  }
  machine.network_latency *= std::exp(x[network_latency]);
  machine.network_per_rank *= std::exp(x[network_latency]);
  return machine;
}

}  // namespace

MachineFit fit_machine(const Machine& machine, const std::vector<MeasuredRun>& runs) {
  std::vector<double> measured;
  for (const MeasuredRun& run : runs) measured.push_back(run.seconds);
  const Logarithms x =
      fit(2, measured, [&](const Logarithms& at) { return predicted_of(with_speeds(machine, at), runs); });
  const Machine fitted = with_speeds(machine, x);
  return {fitted, predicted_of(machine, runs), predicted_of(fitted, runs)};
}

Machine fit_calls(const Machine& machine, const std::vector<CallTime>& calls) {
  std::vector<double> measured;
  for (const CallTime& call : calls) measured.push_back(call.seconds);
  return with_links(machine, fit(network_latency + 1, measured, [&](const Logarithms& x) {
                      const Machine at = with_links(machine, x);
                      std::vector<double> seconds;
                      for (const CallTime& c : calls) seconds.push_back(collective_seconds(at, c.call, c.place));
                      return seconds;
                    }));
}

}  // namespace forge
