#include "predict/fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "predict/prediction.hpp"

namespace forge {

namespace {

constexpr double pull = 1e-4, difference = 0.02, longest_step = 0.7;
constexpr int iterations = 12;

using Logarithms = std::array<double, 2>;  // of the factors of compute and network

Machine with_factors(Machine machine, const Logarithms& x) {
  machine.compute_speed *= std::exp(x[0]);
  machine.network_speed *= std::exp(x[1]);
  return machine;
}

std::vector<double> predicted(const Machine& machine, const std::vector<MeasuredRun>& runs) {
  std::vector<double> seconds;
  for (const MeasuredRun& run : runs) seconds.push_back(predict(machine, run.setup).seconds);
  return seconds;
}

}  // namespace

MachineFit fit_machine(const Machine& machine, const std::vector<MeasuredRun>& runs) {
  MachineFit fit;
  fit.before = predicted(machine, runs);
  Logarithms x{};
  for (int i = 0; i < iterations; ++i) {
    const auto now = predicted(with_factors(machine, x), runs);
    const auto faster = predicted(with_factors(machine, {x[0] + difference, x[1]}), runs);
    const auto nearer = predicted(with_factors(machine, {x[0], x[1] + difference}), runs);
    // Normal equations: (JᵀJ + pull) step = -(Jᵀr + pull x), r = log(predicted / measured).
    double a = pull, b = 0, d = pull, e = -pull * x[0], f = -pull * x[1];
    for (std::size_t k = 0; k < runs.size(); ++k) {
      const double r = std::log(now[k] / runs[k].seconds), jc = std::log(faster[k] / now[k]) / difference,
                   jn = std::log(nearer[k] / now[k]) / difference;
      a += jc * jc;
      b += jc * jn;
      d += jn * jn;
      e -= jc * r;
      f -= jn * r;
    }
    const double determinant = a * d - b * b;
    x[0] += std::clamp((e * d - b * f) / determinant, -longest_step, longest_step);
    x[1] += std::clamp((a * f - b * e) / determinant, -longest_step, longest_step);
  }
  fit.machine = with_factors(machine, x);
  fit.after = predicted(fit.machine, runs);
  return fit;
}

}  // namespace forge
