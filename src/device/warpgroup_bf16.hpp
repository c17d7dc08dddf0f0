#pragma once

#include "device/warpgroup.hpp"
#if defined(FORGE_VGPU)
#include <vgpu/warpgroup_bf16.h>
#endif

// CUDA build, in files that nvcc compiles: products of bf16 that four warps compute together (wgmma, sm_90a), each with
// operands whose lines or whose depth are contiguous in shared memory.

namespace forge {

// An operand's 64 of the depth in shared memory, from a multiple of 1,024 bytes on, in pieces of eight rows of 128
// bytes with chunk c of 16 bytes of row r at place c xor (r mod 8): PTX ISA, "Matrix Descriptor", 128-byte swizzling.
//   depth-major: a row is a line, and has the 64 of the depth; the next eight lines are 1,024 bytes away.
//   else: a row is a place of the depth, and has 64 lines; the next eight of the depth are 1,024 bytes away, the next
//   64 lines 8,192.
constexpr int warpgroup_depth = 64, warpgroup_columns = 256, warpgroup_panel_bytes = 64 * 128;

#if defined(FORGE_VGPU)
using WarpgroupProducts = vgpu::WarpgroupProducts;
#else
// The products that a thread has begun and not waited for: the GPU counts them.
struct WarpgroupProducts {};
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace warpgroup_detail {

template <bool depth_major>
__device__ inline std::uint64_t descriptor_bf16(const void* operand) {
  constexpr std::uint64_t panels = std::uint64_t{warpgroup_panel_bytes >> 4} << 16;
  return depth_major ? descriptor(operand) : (descriptor(operand) & ~one_row) | panels;
}

#define FORGE_FOUR(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define FORGE_ALL                                                                                                     \
  FORGE_FOUR(0), FORGE_FOUR(1), FORGE_FOUR(2), FORGE_FOUR(3), FORGE_FOUR(4), FORGE_FOUR(5), FORGE_FOUR(6),            \
      FORGE_FOUR(7), FORGE_FOUR(8), FORGE_FOUR(9), FORGE_FOUR(10), FORGE_FOUR(11), FORGE_FOUR(12), FORGE_FOUR(13),    \
      FORGE_FOUR(14), FORGE_FOUR(15), FORGE_FOUR(16), FORGE_FOUR(17), FORGE_FOUR(18), FORGE_FOUR(19), FORGE_FOUR(20), \
      FORGE_FOUR(21), FORGE_FOUR(22), FORGE_FOUR(23), FORGE_FOUR(24), FORGE_FOUR(25), FORGE_FOUR(26), FORGE_FOUR(27), \
      FORGE_FOUR(28), FORGE_FOUR(29), FORGE_FOUR(30), FORGE_FOUR(31)

// d(64, 256) += a(64, 16) b(256, 16)ᵀ, some time before the wait.
template <bool a_depth_major, bool b_depth_major>
__device__ inline void multiply_16(float (&d)[32][4], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,"
      "%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,"
      "%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,"
      "%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
      "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,"
      "%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,"
      "%120,%121,%122,%123,%124,%125,%126,%127"
      "}, %128, %129, adds, 1, 1, %131, %132;\n}"
      : FORGE_ALL
      : "l"(a), "l"(b), "r"(1), "n"(a_depth_major ? 0 : 1), "n"(b_depth_major ? 0 : 1));
}
#undef FORGE_ALL

}  // namespace warpgroup_detail
#endif

// Begins d(64, 256) += a(64, 64) b(256, 64)ᵀ of bf16. Warp w of the four has the rows from 16 w on, and of these lane
// 4 g + t in d[j][2 i + e] row g + 8 i, column 8 j + 2 t + e. Until the wait, d, a and b stay untouched.
#if defined(FORGE_VGPU)
template <bool a_depth_major, bool b_depth_major>
inline void begin_warpgroup_product(WarpgroupProducts& products, float (&d)[32][4], const void* a, const void* b,
                                    const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  vgpu::begin_product(products, d, {a, a_depth_major, warpgroup_panel_bytes, 1024},
                      {b, b_depth_major, warpgroup_panel_bytes, 1024}, file, line);
}
#else
template <bool a_depth_major, bool b_depth_major>
__device__ inline void begin_warpgroup_product(WarpgroupProducts&, [[maybe_unused]] float (&d)[32][4],
                                               [[maybe_unused]] const void* a, [[maybe_unused]] const void* b) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const std::uint64_t left = warpgroup_detail::descriptor_bf16<a_depth_major>(a),
                      right = warpgroup_detail::descriptor_bf16<b_depth_major>(b);
  constexpr unsigned a_step = a_depth_major ? 32 >> 4 : 2048 >> 4, b_step = b_depth_major ? 32 >> 4 : 2048 >> 4;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (unsigned k = 0; k < warpgroup_depth / 16; ++k)
    warpgroup_detail::multiply_16<a_depth_major, b_depth_major>(d, left + a_step * k, right + b_step * k);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  __trap();
#endif
}
#endif

// Until all but the newest `pending` products that this thread began are there.
#if defined(FORGE_VGPU)
template <int pending>
inline void wait_for_warpgroup_products(WarpgroupProducts& products, float (&)[32][4],
                                        const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  vgpu::wait_for_products(products, pending, file, line);
}
#else
template <int pending>
__device__ inline void wait_for_warpgroup_products(WarpgroupProducts&, [[maybe_unused]] float (&d)[32][4]) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  if constexpr (pending == 0) {  // no use of d moves before the wait
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("" : FORGE_FOUR(i)::"memory");
  }
#endif
}
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#undef FORGE_FOUR
#endif
#endif

// Asks for the line of 128 bytes of device memory to be in the L2 cache soon.
#if defined(FORGE_VGPU)
inline void prefetch_line(const void*) {}
#else
__device__ inline void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
#endif

}  // namespace forge
