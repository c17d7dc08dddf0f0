#include "kernels/fp8/fp8_history_rows.hpp"

#include <cmath>

#include "device/parallel.hpp"

namespace forge {

void fp8_raise(Stream& stream, View<const float, 1> amax, View<float, 1> most) {
  parallel_for(stream, 1, [=] FORGE_LAMBDA(std::int64_t) { most[0] = amax[0] > most[0] ? amax[0] : most[0]; });
}

namespace {

FORGE_INLINE float largest_of(const float* row, std::int64_t n) {
  float most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = row[i] > most ? row[i] : most;
  return most;
}

}  // namespace

void fp8_largest_of_history(Stream& stream, View<const float, 2> entries, View<float, 1> given) {
  const std::int64_t n = entries.columns();
  parallel_for(stream, entries.rows(), [=] FORGE_LAMBDA(std::int64_t r) { given[r] = largest_of(entries.row(r), n); });
}

void fp8_judge_history(Stream& stream, View<const float, 1> step, View<StepScalars, 1> scalars) {
  constexpr auto infinite = static_cast<float>(INFINITY);
  const std::int64_t n = step.rows();
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const float most = team.template max<float>(n, [=](std::int64_t i) { return step[i]; });
    if (team.leads() && !(most < infinite)) scalars[0].norm_squared = static_cast<double>(INFINITY);
  });
}

void fp8_move_history(Stream& stream, View<const StepScalars, 1> scalars, View<const float, 1> step,
                      View<float, 2> entries, View<float, 1> given) {
  const std::int64_t n = entries.columns();
  parallel_for(stream, entries.rows(), [=] FORGE_LAMBDA(std::int64_t r) {
    if (scalars[0].finite == 0) return;
    float* const row = entries.row(r);
    for (std::int64_t i = n - 1; i > 0; --i) row[i] = row[i - 1];
    row[0] = step[r];
    given[r] = largest_of(row, n);
  });
}

}  // namespace forge
