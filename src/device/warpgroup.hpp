#pragma once

#include <cstdint>

#include "device/launch.hpp"
#if defined(FORGE_VGPU)
#include <vgpu/instructions.h>
#endif

// CUDA build, in files that nvcc compiles: products that four warps compute together, of operands in shared memory
// (wgmma). sm_90a alone has them: code for it runs on H100, H200 and GH200, and nowhere else.

namespace forge {

// Whether this thread's device has them: compute capability 9.0.
inline bool device_has_warpgroups() {
  return device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

// Rows of 128 bytes in shared memory, from a multiple of 1,024 on, chunk c of 16 bytes of row r at place c xor (r mod
// 8): PTX ISA, "Matrix Descriptor", 128-byte swizzling, depth-major.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace warpgroup_detail {

constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62, eight_rows = std::uint64_t{1024 >> 4} << 32,
                        one_row = std::uint64_t{1} << 16;

__device__ inline std::uint64_t descriptor(const void* rows) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(rows));
  return swizzle_128 | eight_rows | one_row | (address & 0x3ffffu) >> 4;
}

// The descriptor of panels whose rows run along the depth of the product: 64 columns a panel.
__device__ inline std::uint64_t columns_descriptor(const void* rows, int panel_bytes) {
  return descriptor(rows) - one_row + (static_cast<std::uint64_t>(panel_bytes >> 4) << 16);
}

}  // namespace warpgroup_detail
#endif

// This thread's writes to shared memory, copies that have landed included, are there for products of warpgroups behind
// the next barrier.
#if defined(FORGE_VGPU)
inline void publish_to_warpgroups() {}
#else
__device__ inline void publish_to_warpgroups() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
#endif

// Tiles of bf16 for products of warpgroups: panels of 64 columns, one `panel_bytes` behind the other, each of rows of
// 128 bytes as above. A product of an operand begins at a row that is a multiple of 8.

#if defined(FORGE_VGPU)
#define FORGE_WARPGROUP_FUNCTION inline
#define FORGE_PLACE , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#else
#define FORGE_WARPGROUP_FUNCTION __device__ inline
#define FORGE_PLACE
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FORGE_SM_90A(...) __VA_ARGS__
#elif defined(FORGE_VGPU)
#define FORGE_SM_90A(...)
#else
#define FORGE_SM_90A(...) __trap()
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace warpgroup_detail {

#define FORGE_FOUR(how, i) how(d[i][0]), how(d[i][1]), how(d[i][2]), how(d[i][3])
#define FORGE_16(how) FORGE_FOUR(how, 0), FORGE_FOUR(how, 1), FORGE_FOUR(how, 2), FORGE_FOUR(how, 3)
#define FORGE_32(how) FORGE_16(how), FORGE_FOUR(how, 4), FORGE_FOUR(how, 5), FORGE_FOUR(how, 6), FORGE_FOUR(how, 7)
#define FORGE_64(how)                                                                              \
  FORGE_32(how), FORGE_FOUR(how, 8), FORGE_FOUR(how, 9), FORGE_FOUR(how, 10), FORGE_FOUR(how, 11), \
      FORGE_FOUR(how, 12), FORGE_FOUR(how, 13), FORGE_FOUR(how, 14), FORGE_FOUR(how, 15)
#define FORGE_96(how)                                                                                \
  FORGE_64(how), FORGE_FOUR(how, 16), FORGE_FOUR(how, 17), FORGE_FOUR(how, 18), FORGE_FOUR(how, 19), \
      FORGE_FOUR(how, 20), FORGE_FOUR(how, 21), FORGE_FOUR(how, 22), FORGE_FOUR(how, 23)
#define FORGE_NAMES_16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define FORGE_NAMES_32                                                                                   \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%" \
  "27,%28,%29,%30,%31}"
#define FORGE_NAMES_64                                                                                   \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%" \
  "27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%" \
  "52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define FORGE_NAMES_96                                                                                   \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%" \
  "27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%" \
  "52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%" \
  "77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}"
// One instruction: d(64, 8 j) = or += a(64, 16) b, with `a` in shared memory or in registers. The first one of a sum
// doesn't read d: a register that other instructions wrote would have to wait for all products under way.
#define FORGE_MULTIPLY_16(j, columns, registers, a_operand, b_operand)                                               \
  __device__ inline void begin_16(float(&d)[j][4], std::uint64_t a, std::uint64_t b) {                               \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" columns           \
                 "k16.f32.bf16.bf16 " FORGE_NAMES_##registers ", " a_operand ", " b_operand ", adds, 1, 1, 0, 0;\n}" \
                 : FORGE_##registers("=f")                                                                           \
                 : "l"(a), "l"(b));                                                                                  \
  }                                                                                                                  \
  __device__ inline void multiply_16(float(&d)[j][4], std::uint64_t a, std::uint64_t b) {                            \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 " FORGE_NAMES_##registers            \
                 ", " a_operand ", " b_operand ", 1, 1, 1, 0, 0;"                                                    \
                 : FORGE_##registers("+f")                                                                           \
                 : "l"(a), "l"(b));                                                                                  \
  }
FORGE_MULTIPLY_16(4, "32", 16, "%16", "%17")
FORGE_MULTIPLY_16(8, "64", 32, "%32", "%33")
FORGE_MULTIPLY_16(16, "128", 64, "%64", "%65")
#undef FORGE_MULTIPLY_16
__device__ inline void multiply_16(float (&d)[8][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " FORGE_NAMES_32
               ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
               : FORGE_32("+f")
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ inline void multiply_16(float (&d)[16][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " FORGE_NAMES_64
               ", {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
               : FORGE_64("+f")
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ inline void multiply_16(float (&d)[24][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 " FORGE_NAMES_96
               ", {%96,%97,%98,%99}, %100, 1, 1, 1, 1;"
               : FORGE_96("+f")
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef FORGE_NAMES_96
#undef FORGE_NAMES_64
#undef FORGE_NAMES_32
#undef FORGE_NAMES_16
#undef FORGE_96
#undef FORGE_64
#undef FORGE_32
#undef FORGE_16
#undef FORGE_FOUR

}  // namespace warpgroup_detail
#endif

// Traps where memory of the block begins elsewhere than at a multiple of `bytes`; for the compiler it may.
FORGE_WARPGROUP_FUNCTION void require_shared_alignment([[maybe_unused]] const void* memory,
                                                       [[maybe_unused]] int bytes) {
  FORGE_SM_90A(auto address = static_cast<int>(__cvta_generic_to_shared(memory)); asm volatile(""
                                                                                               : "+r"(address));
               if (address % bytes != 0) __trap());
}

// Before products of warpgroups: this thread's writes to their registers are there for them.
FORGE_WARPGROUP_FUNCTION void begin_warpgroup_products() {
  FORGE_SM_90A(asm volatile("wgmma.fence.sync.aligned;" ::: "memory"));
}

// Starts d(64, 8 j) = a(64, columns) b(8 j, columns)ᵀ, as a group; warps and lanes as above.
template <int columns, int j>
FORGE_WARPGROUP_FUNCTION void start_product_of_rows([[maybe_unused]] float (&d)[j][4], [[maybe_unused]] const void* a,
                                                    [[maybe_unused]] int a_panel_bytes, [[maybe_unused]] const void* b,
                                                    [[maybe_unused]] int b_panel_bytes FORGE_PLACE) {
#if defined(FORGE_VGPU)
  vgpu::warpgroup_product_of_rows<columns, j>(d, a, a_panel_bytes, b, b_panel_bytes, file, line);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const std::uint64_t rows = warpgroup_detail::descriptor(a), others = warpgroup_detail::descriptor(b);
  warpgroup_detail::begin_16(d, rows, others);
#pragma unroll
  for (int k = 1; k < columns / 16; ++k)
    warpgroup_detail::multiply_16(d, rows + static_cast<unsigned>(k / 4 * (a_panel_bytes >> 4) + 2 * (k % 4)),
                                  others + static_cast<unsigned>(k / 4 * (b_panel_bytes >> 4) + 2 * (k % 4)));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  __trap();
#endif
}

// Starts d(64, 8 j) += w(64, 16 k) x(16 k, 8 j), as a group; w in registers, as of mma.m16n8k16 for each warp.
template <int k, int j>
FORGE_WARPGROUP_FUNCTION void start_product([[maybe_unused]] float (&d)[j][4],
                                            [[maybe_unused]] const std::uint32_t (&w)[k][4],
                                            [[maybe_unused]] const void* x,
                                            [[maybe_unused]] int panel_bytes FORGE_PLACE) {
#if defined(FORGE_VGPU)
  vgpu::warpgroup_product<k, j>(d, w, x, panel_bytes, file, line);
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const std::uint64_t rows = warpgroup_detail::columns_descriptor(x, panel_bytes);
#pragma unroll
  for (int r = 0; r < k; ++r) warpgroup_detail::multiply_16(d, w[r], rows + static_cast<unsigned>(128 * r));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  __trap();
#endif
}

// Until all groups but the newest `pending` ones are done: d has their result.
template <int pending, int j>
FORGE_WARPGROUP_FUNCTION void finish_products([[maybe_unused]] float (&d)[j][4]) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
#pragma unroll
  for (int c = 0; c < j; ++c)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(d[c][e])::"memory");
#endif
}

// Values that x follows from are computed before the next wait for products. ptxas would move the wait ahead of
// arithmetic that the products are to hide, but not ahead of a store, which this is to it: of an x that isn't a number,
// to 16 bytes of shared memory that nobody reads.
FORGE_WARPGROUP_FUNCTION void compute_before_wait([[maybe_unused]] float x, [[maybe_unused]] float* unread) {
  FORGE_SM_90A(
      asm volatile("{\n.reg .pred is_nan;\nsetp.nan.f32 is_nan, %0, %0;\n@is_nan st.shared.f32 [%1], %0;\n}" ::"f"(x),
                   "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(unread)))
                   : "memory"));
}
template <int j>
FORGE_WARPGROUP_FUNCTION void compute_before_wait([[maybe_unused]] const float (&x)[j][4],
                                                  [[maybe_unused]] float* unread) {
#pragma unroll
  for (int i = 0; i < j; ++i)
    FORGE_SM_90A(asm volatile(
        "{\n.reg .pred is_nan;\nsetp.nan.f32 is_nan, %0, %0;\n"
        "@is_nan st.shared.v4.f32 [%4], {%0, %1, %2, %3};\n}" ::"f"(x[i][0]),
        "f"(x[i][1]), "f"(x[i][2]), "f"(x[i][3]), "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(unread)))
        : "memory"));
}

#undef FORGE_SM_90A
#undef FORGE_WARPGROUP_FUNCTION
#undef FORGE_PLACE

}  // namespace forge
