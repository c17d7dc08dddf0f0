#pragma once

#include "vgpu/instructions.h"

// wgmma.m64n256k16 of bf16, as the emulated device does it: the host's bodies of src/device/warpgroup_bf16.hpp. Where an
// operand's values stand: PTX ISA, "Strides" and "Matrix Descriptor" of wgmma, 128-byte swizzling.

namespace vgpu {

// What a matrix descriptor says of an operand: where it starts; whether its depth or its lines are contiguous; bytes
// between its 64s of lines (only the latter have them), and between its eights of rows of 128 bytes.
struct WarpgroupOperand {
  const void* start;
  bool depth_major;
  std::uint32_t leading_bytes, stride_bytes;

  // The address of element (line, k): bits 4 to 6 are changed by bits 7 to 9.
  VGPU_UNCHECKED std::uintptr_t at(int line, int k) const {
    const auto outer = static_cast<std::uint32_t>(depth_major ? line : k);
    const auto inner = static_cast<std::uint32_t>(depth_major ? k : line);
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(start) + outer / 8 * stride_bytes +
                                   outer % 8 * 128 + inner / 64 * leading_bytes + inner % 64 * 2;
    return address ^ (address >> 7 & 7) << 4;
  }
  VGPU_UNCHECKED WarpgroupOperand from(std::uint32_t bytes) const {
    return {static_cast<const char*>(start) + bytes, depth_major, leading_bytes, stride_bytes};
  }
};

// Products that a thread has begun. Their operands are read as they begin, which is the earliest, and again when they
// are waited for, which is the latest.
struct WarpgroupProducts {
  static constexpr int most = 4;
  WarpgroupOperand a[most], b[most];
  int count = 0;
};

// Reads a part of 64 of an operand's depth as the kernel's own accesses, four values at a time, in turn by each lane.
inline void load_operand(const WarpgroupOperand& x, int first, int lines, float (*to)[64]) {
  const int outer = x.depth_major ? lines : 64, inner = x.depth_major ? 64 : lines;
  for (int o = 0; o < outer; ++o) {
    vgpu_lane(o % 32);
    for (int i = 0; i < inner; i += 4) {
      const int line = x.depth_major ? o : i, k = x.depth_major ? i : o;
      // An instruction has 16 of the depth: its descriptor starts further on.
      const WarpgroupOperand of = x.from(static_cast<std::uint32_t>(k / 16) * (x.depth_major ? 32 : 2 * x.stride_bytes));
      const auto four = *reinterpret_cast<const std::uint64_t*>(of.at(first + line, k % 16));
      for (int e = 0; e < 4; ++e)
        to[x.depth_major ? line : line + e][x.depth_major ? k + e : k] =
            get_float(static_cast<std::uint32_t>(four >> (16 * e)) << 16);
    }
  }
}

VGPU_UNCHECKED inline WarpgroupOperand operand_of(const std::uint32_t* words) {
  return {get<const void*>(words), words[2] % 2 != 0, words[2] / 2, words[3]};
}

VGPU_UNCHECKED inline void add_products(VgpuLanes* w, const float (*a)[64], const float (*b)[64]) {
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 256; ++column) {
      const int lane = row % 8 * 4 + column % 8 / 2;
      float& d = get<float*>(&w->in[lane][0])[column / 8 * 4 + row / 8 * 2 + column % 2];
      for (int first = 0; first < 64; first += 16) {  // an instruction's sum, rounded once
        double sum = static_cast<double>(d);
        for (int k = first; k < first + 16; ++k)
          sum += static_cast<double>(a[row][k]) * static_cast<double>(b[column][k]);
        d = static_cast<float>(sum);
      }
    }
}

// A warp's part of four instructions. Words of a lane: where its part of D stands; A; B; the warp's place among its four.
template <bool computes>
void warpgroup_bf16(VgpuLanes* w) {
  float a[16][64], b[256][64];
  load_operand(operand_of(&w->in[0][2]), 16 * static_cast<int>(w->in[0][10]), 16, a);
  load_operand(operand_of(&w->in[0][6]), 0, 256, b);
  if (computes) add_products(w, a, b);
}

VGPU_UNCHECKED inline void warpgroup_operation(bool computes, float* d, const WarpgroupOperand& a,
                                               const WarpgroupOperand& b, const char* file, int line) {
  std::uint32_t in[11], out[1];
  put(&in[0], d);
  put(&in[2], a.start);
  in[4] = 2 * a.leading_bytes + a.depth_major, in[5] = a.stride_bytes;
  put(&in[6], b.start);
  in[8] = 2 * b.leading_bytes + b.depth_major, in[9] = b.stride_bytes;
  in[10] = threadIdx.x / 32 % 4;
  if (computes)
    whole_warp("wgmma.m64n256k16", warpgroup_bf16<true>, in, out, file, line);
  else
    whole_warp("wgmma.wait_group", warpgroup_bf16<false>, in, out, file, line);
}

VGPU_UNCHECKED inline void begin_product(WarpgroupProducts& products, float (&d)[32][4], const WarpgroupOperand& a,
                                         const WarpgroupOperand& b, const char* file, int line) {
  for (const void* operand : {a.start, b.start})
    if (!vgpu_is_shared(operand) || reinterpret_cast<std::uintptr_t>(operand) % 1024 != 0)
      vgpu_fail("wgmma: an operand is not in shared memory, or not aligned to 1,024 bytes");
  if (products.count == WarpgroupProducts::most) vgpu_fail("wgmma: more products are begun than the emulation keeps");
  products.a[products.count] = a;
  products.b[products.count++] = b;
  warpgroup_operation(true, &d[0][0], a, b, file, line);
}

VGPU_UNCHECKED inline void wait_for_products(WarpgroupProducts& products, int pending, const char* file, int line) {
  const int done = products.count > pending ? products.count - pending : 0;
  for (int i = 0; i < done; ++i)
    warpgroup_operation(false, nullptr, products.a[i], products.b[i], file, line);
  for (int i = done; i < products.count; ++i) {
    products.a[i - done] = products.a[i];
    products.b[i - done] = products.b[i];
  }
  products.count -= done;
}

}  // namespace vgpu
