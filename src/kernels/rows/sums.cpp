#include <algorithm>

#include "core/partials.hpp"
#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

template <class A>
void sum_into(Stream& stream, View<const A, 1> x, View<double, 1> out) {
  note_rows(stream, "sum_into", bytes_in(x), 0);
  const std::int64_t n = x.rows();
  const A* in = x.data;
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const double sum = team.template sum<double>(
        n, [=](const A& x_j) { return double(x_j); }, in);
    if (team.leads()) out[0] += sum;
  });
}

template <class A>
void sum_by_group(Stream& stream, View<const A, 1> x, View<const std::int32_t, 1> group, View<double, 1> out) {
  note_rows(stream, "sum_by_group", out.rows() > 0 ? bytes_in(x, group) : 0, 0);
  const std::int64_t n = x.rows();
  const A* in = x.data;
  const std::int32_t* of = group.data;
  parallel_rows(stream, out.rows(), [=] FORGE_LAMBDA(std::int64_t g, Team team) {
    const double sum = team.template sum<double>(n, [=](std::int64_t j) { return of[j] == g ? double(in[j]) : 0.0; });
    if (team.leads()) out[g] += sum;
  });
}

// Blocks are a function of n alone: at most sum_partials of them, and none of a few elements only.
template <class A>
void sum_of_squares(Stream& stream, View<const A, 1> x, View<double, 1> partial, View<double, 1> out) {
  constexpr std::int64_t least = 256;
  const std::int64_t n = x.rows(), per_part = std::max(least, (n + sum_partials - 1) / sum_partials);
  const std::int64_t block = (per_part + block_multiple - 1) / block_multiple * block_multiple;
  const std::int64_t blocks = (n + block - 1) / block;
  parallel_rows(stream, blocks, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    const std::int64_t begin = b * block, end = begin + block < n ? begin + block : n;
    const A* in = x.data + begin;
    const double sum = team.template sum<double>(
        end - begin, [=](const A& x_j) { return double(x_j) * double(x_j); }, in);
    if (team.leads()) partial[b] = sum;
  });
  sum_into<double>(stream, View<const double, 1>(partial.data, {{blocks}}), out);
}

void finish_scalars(Stream& stream, View<StepScalars, 1> scalars, double clip_norm) {
  parallel_for(stream, 1, [=] FORGE_LAMBDA(std::int64_t) {
    StepScalars& s = scalars[0];
    const double norm = math::sqrt(s.norm_squared);
    const double ratio = clip_norm / (norm + 1e-6);
    s.clip_coefficient = clip_norm > 0 && ratio < 1 ? ratio : 1;
    const double probe = (s.loss_sum + s.z_sum + s.norm_squared) * 0;  // 0, or NaN where a term is NaN or Inf
    s.finite = probe == 0 ? 1 : 0;
  });
}

FORGE_INSTANTIATE_ACC_FUNCTION(sum_into);
FORGE_INSTANTIATE_ACC_FUNCTION(sum_by_group);
FORGE_INSTANTIATE_FUNCTION(sum_of_squares);

}  // namespace forge
