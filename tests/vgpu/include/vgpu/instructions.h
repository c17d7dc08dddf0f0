#pragma once

// PTX instructions of tensor cores and asynchronous copies, as the emulated device does them: the host's bodies of
// src/device/instructions.hpp. Where values of a matrix stand in the registers of a warp: PTX ISA, 9.7.14 and 9.7.15
// (Matrix Fragments for mma). Lane l = 4 g + t.

#include <cmath>
#include <cstddef>

#include "cuda_fp8.h"
#include "vgpu/kernel.h"

namespace vgpu {

inline float tf32(std::uint32_t bits) {
  return get_float(bits & 0xffffe000u);  // the last 13 bits take no part
}
inline float half_of(std::uint32_t pair, int i) {
  return get_float(i == 0 ? pair << 16 : pair & 0xffff0000u);
}

// As cvt.rn.bf16x2.f32: NaN becomes 0x7fff.
VGPU_UNCHECKED inline std::uint32_t bf16_of(float x) {
  std::uint32_t u;
  put(&u, x);
  return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}
VGPU_UNCHECKED inline std::uint32_t bf16_pair(float low, float high) {
  return bf16_of(low) | bf16_of(high) << 16;
}

template <__nv_fp8_interpretation_t kind>
VGPU_UNCHECKED inline std::uint16_t fp8_pair(float low, float high) {
  return static_cast<std::uint16_t>(to_fp8(low, __NV_SATFINITE, kind) | to_fp8(high, __NV_SATFINITE, kind) << 8);
}

// As ex2.approx.ftz.f32: 2^0 is 1; elsewhere the error is 2^-23 of the value, where the GPU promises 2^-22.
VGPU_UNCHECKED inline float exp2_approximate(float x) {
  const float y = static_cast<float>(std::exp2(static_cast<double>(x)) * (x == 0 ? 1 : 1 + 0x1p-23));
  return y < 0x1p-126f ? 0 : y;
}

// D = A B + C of 16 x 8 x k; A(16, k) and B(k, 8) as arrays. Sums in double, rounded once: no tensor core is more
// exact, and PTX leaves the order open.
template <int k>
VGPU_UNCHECKED inline void multiply(VgpuLanes* w, const float (&a)[16][k], const float (&b)[k][8], int first_c) {
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i) {
      const int row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
      double sum = get_float(w->in[l][first_c + i]);
      for (int j = 0; j < k; ++j) sum += static_cast<double>(a[row][j]) * static_cast<double>(b[j][column]);
      put(&w->out[l][i], static_cast<float>(sum));
    }
}

VGPU_UNCHECKED inline void mma_bf16(VgpuLanes* w) {
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; ++l)
    for (int h = 0; h < 2; ++h) {
      const int g = l / 4, t = l % 4;
      for (int r = 0; r < 4; ++r) a[g + r % 2 * 8][2 * t + h + r / 2 * 8] = half_of(w->in[l][r], h);
      for (int r = 0; r < 2; ++r) b[2 * t + h + r * 8][g] = half_of(w->in[l][4 + r], h);
    }
  multiply(w, a, b, 6);
}

VGPU_UNCHECKED inline void mma_tf32(VgpuLanes* w) {
  float a[16][8], b[8][8];
  for (int l = 0; l < 32; ++l) {
    const int g = l / 4, t = l % 4;
    for (int r = 0; r < 4; ++r) a[g + r % 2 * 8][t + r / 2 * 4] = tf32(w->in[l][r]);
    for (int r = 0; r < 2; ++r) b[t + r * 4][g] = tf32(w->in[l][4 + r]);
  }
  multiply(w, a, b, 6);
}

// A warp's part of wgmma.m64nNk16 of bf16. Words of a lane: where its part of D stands, then where A does (or its words of
// it) and B, the bytes of their panels of 64 columns, and the warp's place among its four. Values are read from shared
// memory as the kernel's own accesses, with the 128-byte swizzle.
VGPU_UNCHECKED inline void keep_pair(float* to, std::uint32_t pair) {
  for (int h = 0; h < 2; ++h) to[h] = half_of(pair, h);
}

inline void load_panels(const std::uint8_t* panels, int panel_bytes, int first, int rows, int columns, float* to) {
  for (int r = 0; r < rows; ++r) {
    vgpu_lane(r % 32);
    for (int chunk = 0; chunk < columns / 8; ++chunk) {
      const std::uint8_t* at =
          panels + chunk / 8 * panel_bytes + (first + r) * 128 + (chunk % 8 ^ ((first + r) & 7)) * 16;
      for (int pair = 0; pair < 4; ++pair)
        keep_pair(to + r * columns + 8 * chunk + 2 * pair, *reinterpret_cast<const std::uint32_t*>(at + 4 * pair));
    }
  }
}

// d[16 x columns] = or += a[16 x depth] b[depth x columns]: sums of an instruction's 16 are rounded once. Columns are inside,
// where the compiler takes several at once.
template <int columns>
VGPU_UNCHECKED inline void multiply_panels(VgpuLanes* w, const float* a, int depth, const float* b, bool adds) {
  static thread_local float totals[columns];
  static thread_local double sums[columns];
  for (int row = 0; row < 16; ++row) {
    const auto d = [&](int column) -> float& {
      const int lane = row % 8 * 4 + column % 8 / 2;
      return get<float*>(&w->in[lane][0])[column / 8 * 4 + row / 8 * 2 + column % 2];
    };
    for (int column = 0; column < columns; ++column) totals[column] = adds ? d(column) : 0;
    for (int first = 0; first < depth; first += 16) {
      for (int column = 0; column < columns; ++column) sums[column] = static_cast<double>(totals[column]);
      for (int k = first; k < first + 16; ++k) {
        const auto factor = static_cast<double>(a[row * depth + k]);
        for (int column = 0; column < columns; ++column)
          sums[column] += factor * static_cast<double>(b[k * columns + column]);
      }
      for (int column = 0; column < columns; ++column) totals[column] = static_cast<float>(sums[column]);
    }
    for (int column = 0; column < columns; ++column) d(column) = totals[column];
  }
}

template <int rows, int columns>
VGPU_UNCHECKED inline void transpose_panels(const float* from, float* to) {
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) to[column * rows + row] = from[row * columns + column];
}

template <int depth, int columns>
void warpgroup_rows(VgpuLanes* w) {
  static thread_local float a[16 * depth], b[columns * depth], transposed[depth * columns];
  const std::uint32_t* in = w->in[0];
  load_panels(get<const std::uint8_t*>(in + 2), static_cast<int>(in[6]), 16 * static_cast<int>(in[8]), 16, depth, a);
  load_panels(get<const std::uint8_t*>(in + 4), static_cast<int>(in[7]), 0, columns, depth, b);
  transpose_panels<columns, depth>(b, transposed);
  multiply_panels<columns>(w, a, depth, transposed, false);
}

template <int k>
VGPU_UNCHECKED inline void load_weights(VgpuLanes* w, float* a) {
  for (int l = 0; l < 32; ++l)
    for (int tile = 0; tile < k; ++tile)
      for (int r = 0; r < 4; ++r)
        for (int h = 0; h < 2; ++h)
          a[(l / 4 + r % 2 * 8) * 16 * k + 16 * tile + 2 * (l % 4) + h + r / 2 * 8] =
              half_of(get<const std::uint32_t*>(&w->in[l][2])[4 * tile + r], h);
}

template <int k, int columns>
void warpgroup_weights(VgpuLanes* w) {
  static thread_local float a[16 * 16 * k], b[16 * k * columns];
  const std::uint32_t* in = w->in[0];
  load_weights<k>(w, a);
  load_panels(get<const std::uint8_t*>(in + 4), static_cast<int>(in[6]), 0, 16 * k, columns, b);
  multiply_panels<columns>(w, a, 16 * k, b, true);
}

// 8 x 8 x 4 in fp64.
VGPU_UNCHECKED inline void mma_fp64(VgpuLanes* w) {
  double a[8][4], b[4][8];
  for (int l = 0; l < 32; ++l) {
    a[l / 4][l % 4] = get<double>(&w->in[l][0]);
    b[l % 4][l / 4] = get<double>(&w->in[l][2]);
  }
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 2; ++i) {
      double sum = get<double>(&w->in[l][4 + 2 * i]);
      for (int j = 0; j < 4; ++j) sum += a[l / 4][j] * b[j][l % 4 * 2 + i];
      put(&w->out[l][2 * i], sum);
    }
}

// Lanes 8 i to 8 i + 7 name the rows of matrix i, eight values of 16 bits each; lane l gets the values 2 t and 2 t + 1
// of row g, or, transposed, of column g. The accesses are the kernel's own.
template <int matrices, bool transposed>
void load_matrices(VgpuLanes* w) {
  for (int l = 0; l < 32; ++l) {
    vgpu_lane(l);
    for (int m = 0; m < matrices; ++m) {
      std::uint16_t pair[2];
      for (int i = 0; i < 2; ++i) {
        const int row = transposed ? l % 4 * 2 + i : l / 4, column = transposed ? l / 4 : l % 4 * 2 + i;
        pair[i] = get<const std::uint16_t*>(w->in[8 * m + row])[column];
      }
      w->out[l][m] = pair[0] | static_cast<std::uint32_t>(pair[1]) << 16;
    }
  }
}

template <int in, int out>
VGPU_UNCHECKED inline void whole_warp(const char* name, void (*compute)(VgpuLanes*), const std::uint32_t (&from)[in],
                                      std::uint32_t (&to)[out], const char* file, int line) {
  const VgpuWarpOperation operation{name, compute, in, out};
  vgpu_warp(&operation, 0xffffffffu, from, to, file, line);
}

// d += a b with the words of a, b and d.
template <int nd, int na, int nb, class D>
VGPU_UNCHECKED inline void multiply_add(const char* name, void (*compute)(VgpuLanes*), D (&d)[nd],
                                        const std::uint32_t (&a)[na], const std::uint32_t (&b)[nb], const char* file,
                                        int line) {
  std::uint32_t in[na + nb + nd], out[nd];
  for (int i = 0; i < na; ++i) in[i] = a[i];
  for (int i = 0; i < nb; ++i) in[na + i] = b[i];
  for (int i = 0; i < nd; ++i) put(&in[na + nb + i], d[i]);
  whole_warp(name, compute, in, out, file, line);
  for (int i = 0; i < nd; ++i) d[i] = get<D>(&out[i]);
}

VGPU_UNCHECKED inline void multiply_add_fp64(double (&d)[2], double a, double b, const char* file, int line) {
  std::uint32_t in[8], out[4];
  put(&in[0], a);
  put(&in[2], b);
  put(&in[4], d[0]);
  put(&in[6], d[1]);
  whole_warp("mma.m8n8k4.f64", mma_fp64, in, out, file, line);
  d[0] = get<double>(&out[0]);
  d[1] = get<double>(&out[2]);
}

inline void check_panels(const void* tile) {
  if (!vgpu_is_shared(tile) || reinterpret_cast<std::uintptr_t>(tile) % 1024 != 0)
    vgpu_fail("wgmma: a tile is not in shared memory, or not aligned to 1,024 bytes");
}

template <int columns, int j>
VGPU_UNCHECKED inline void warpgroup_product_of_rows(float (&d)[j][4], const void* a, int a_panel_bytes, const void* b,
                                                     int b_panel_bytes, const char* file, int line) {
  std::uint32_t in[9], out[1];
  check_panels(a);
  check_panels(b);
  put(&in[0], &d[0][0]);
  put(&in[2], a);
  put(&in[4], b);
  in[6] = static_cast<std::uint32_t>(a_panel_bytes);
  in[7] = static_cast<std::uint32_t>(b_panel_bytes);
  in[8] = threadIdx.x / 32 % 4;
  whole_warp("wgmma.k16.bf16", warpgroup_rows<columns, 8 * j>, in, out, file, line);
}

template <int k, int j>
VGPU_UNCHECKED inline void warpgroup_product(float (&d)[j][4], const std::uint32_t (&w)[k][4], const void* x,
                                             int panel_bytes, const char* file, int line) {
  std::uint32_t in[7], out[1];
  check_panels(x);
  put(&in[0], &d[0][0]);
  put(&in[2], &w[0][0]);
  put(&in[4], x);
  in[6] = static_cast<std::uint32_t>(panel_bytes);
  whole_warp("wgmma.k16.bf16", warpgroup_weights<k, 8 * j>, in, out, file, line);
}

template <int matrices, bool transposed>
VGPU_UNCHECKED inline void load(std::uint32_t (&r)[matrices], const void* row, const char* file, int line) {
  std::uint32_t in[2];
  put(in, row);
  if (!vgpu_is_shared(row) || reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    vgpu_fail("ldmatrix: a row is not in shared memory, or not aligned to 16 bytes");
  whole_warp("ldmatrix", load_matrices<matrices, transposed>, in, r, file, line);
}

}  // namespace vgpu
