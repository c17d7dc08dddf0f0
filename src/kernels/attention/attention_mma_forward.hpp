#pragma once

#include <cmath>

#include "kernels/attention/attention_mma_launch.hpp"
#include "kernels/attention/attention_mma_mask.hpp"

// Common parts of the forward's kernels, whichever instructions they multiply by.

namespace forge::attention_mma {

// Where a block's statistics go: queries from row row_q on; a lane's rows begin at `row`, and `count` of them exist.
struct Statistics {
  View<float, 2> lse, peak;
  std::int64_t row_q;
  int head, row, count;
};

// Online softmax over tiles of keys (Milakov & Gimelshein 2018; Dao 2023), in powers of two, c = scale · log2 e:
//   s = q kᵀ;  m' = max(m, max s);  p = 2^(c s − c m');  a = 2^(c m − c m')
//   l ← a l + Σ p;  o ← a o + (p ∘ dropout) v;  m ← m'
template <int m, int j>
struct Softmax {
  static constexpr int parts = 4;  // of a row's maximum and sum: one alone would wait for its own latency, 32 times
  float c, largest[m][2], total[m][2];

  __device__ explicit Softmax(float factor) : c(factor) {
#pragma unroll
    for (int i = 0; i < m; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[i][half] = -infinity<float>();
        total[i][half] = 0;  // of this lane's columns
      }
  }

  // scores ← p; a of every row to keep.
  __device__ void step(float (&scores)[m][j][4], float (&keep)[m][2]) {
#pragma unroll
    for (int i = 0; i < m; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float peaks[parts] = {largest[i][half], largest[i][half], largest[i][half], largest[i][half]};
#pragma unroll
        for (int n = 0; n < 2 * j; ++n) peaks[n % parts] = fmaxf(peaks[n % parts], scores[i][n / 2][2 * half + n % 2]);
        const float peak = quad_max(fmaxf(fmaxf(peaks[0], peaks[1]), fmaxf(peaks[2], peaks[3])));
        const float shift = peak == -infinity<float>() ? 0 : c * peak;  // nothing seen yet: 2^(−Inf − 0) = 0
        keep[i][half] = exp2_approximate(c * largest[i][half] - shift);
        largest[i][half] = peak;
        float sums[parts] = {};
#pragma unroll
        for (int n = 0; n < 2 * j; ++n) {
          float& s = scores[i][n / 2][2 * half + n % 2];
          s = exp2_approximate(c * s - shift);
          sums[n % parts] += s;
        }
        total[i][half] = keep[i][half] * total[i][half] + ((sums[0] + sums[1]) + (sums[2] + sums[3]));
      }
  }

  // The statistics of a warp's rows; factors of their sums.
  __device__ void finish(const Statistics& to, float (&factor)[m][2]) const {
#pragma unroll
    for (int i = 0; i < m; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = quad_sum(total[i][half]);
        const int at = to.row + 16 * i + 8 * half + lane() / 4;
        factor[i][half] = sum == 0 ? 0 : 1 / sum;
        if (lane() % 4 != 0 || at >= to.count) continue;
        if (!to.peak.empty()) to.peak.row(to.row_q + at)[to.head] = c * ln_2 * largest[i][half];
        to.lse.row(to.row_q + at)[to.head] = sum == 0 ? -infinity<float>() : (c * largest[i][half] + log2f(sum)) * ln_2;
      }
  }
};

// Whether a row of the warp has a larger peak than before; otherwise all factors are 1.
template <int m>
__device__ bool risen(const float (&keep)[m][2]) {
  bool any = false;
#pragma unroll
  for (int i = 0; i < m; ++i) any = any || keep[i][0] != 1 || keep[i][1] != 1;
  return __any_sync(0xffffffffu, any) != 0;
}

template <int m, int j>
__device__ void scale_rows(const float (&factor)[m][2], float (&sum)[m][j][4]) {
#pragma unroll
  for (int i = 0; i < m; ++i)
#pragma unroll
    for (int c = 0; c < j; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][c][e] *= factor[i][e / 2];
}

// forward() by warpgroups (attention_specialized.hpp), where specialized_takes().
void specialized_forward(Stream& stream, const Problem<bf16>& p, const View<bf16, 3>& o, const View<float, 2>& lse,
                         const View<float, 2>& peak);

}  // namespace forge::attention_mma
