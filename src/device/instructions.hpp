#pragma once

#include <cstdint>

#include "core/to_size.hpp"
#include "device/launch.hpp"
#if defined(FORGE_VGPU)
#include <vgpu/instructions.h>
#endif

// CUDA build, in files that nvcc compiles: instructions of tensor cores and asynchronous copies, which have no words in
// CUDA C++. Each has a body for the device and one for the emulated GPU. All 32 lanes of a warp call them together.
// Fragments: PTX ISA, "Matrix Fragments for mma"; lane 4 g + t.

namespace forge {

#if defined(FORGE_VGPU)
#define FORGE_INSTRUCTION inline
// Where the call stands, which tells one meeting of a warp from another.
#define FORGE_PLACE , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define FORGE_BODY(host, ...) host;
#else
#define FORGE_INSTRUCTION __device__ inline
#define FORGE_PLACE
#define FORGE_BODY(host, ...) __VA_ARGS__;
#endif

// d(16, 8) += a(16, 16) b(16, 8): bf16 in, fp32 out. sm_80.
FORGE_INSTRUCTION void multiply_add_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2] FORGE_PLACE){FORGE_BODY(
    vgpu::multiply_add("mma.m16n8k16.bf16", vgpu::mma_bf16, d, a, b, file, line),
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])))}

// d(16, 8) += a(16, 8) b(8, 8): fp32 whose last 13 bits take no part. sm_80.
FORGE_INSTRUCTION void multiply_add_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2] FORGE_PLACE){
    FORGE_BODY(vgpu::multiply_add("mma.m16n8k8.tf32", vgpu::mma_tf32, d, a, b, file, line),
               asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                            "{%0,%1,%2,%3};"
                            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])))}

// d(8, 8) += a(8, 4) b(4, 8) in fp64. sm_80.
FORGE_INSTRUCTION void multiply_add_fp64(double (&d)[2], double a, double b FORGE_PLACE){
    FORGE_BODY(vgpu::multiply_add_fp64(d, a, b, file, line),
               asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                            : "+d"(d[0]), "+d"(d[1])
                            : "d"(a), "d"(b)))}

// Four 8 x 8 matrices of 16-bit values from shared memory: lane l names row l % 8 of matrix l / 8, 16-byte aligned.
FORGE_INSTRUCTION void load_matrices(std::uint32_t (&r)[4], const void* row FORGE_PLACE){
    FORGE_BODY((vgpu::load<4, false>(r, row, file, line)),
               asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                            : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                            : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
                            : "memory"))}  // Each of them transposed.
FORGE_INSTRUCTION void load_matrices_transposed(std::uint32_t (&r)[4], const void* row FORGE_PLACE) {
  FORGE_BODY((vgpu::load<4, true>(r, row, file, line)),
             asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                          : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                          : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
                          : "memory"))
}

#undef FORGE_PLACE
#define FORGE_PLACE

// No instruction: as far as the compiler knows, x gets another value here. Values computed from x are then computed
// behind this place, each time, and not kept in registers from before a loop.
FORGE_INSTRUCTION void compute_here([[maybe_unused]] int& x) {
#if !defined(FORGE_VGPU)
  asm volatile("" : "+r"(x));
#endif
}

// Two numbers rounded to bf16 (to nearest, ties to even), `low` in the lower half: a register of a fragment. sm_80.
FORGE_INSTRUCTION std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t pair;
  FORGE_BODY(pair = vgpu::bf16_pair(low, high), asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low)))
  return pair;
}

// Codes of two numbers (to nearest, ties to even; beyond the format's largest, that), `low` in the lower byte. sm_89:
// code for a GPU before it traps.
#if defined(FORGE_VGPU) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
#define FORGE_SINCE_SM_89(...) __VA_ARGS__
#else
#define FORGE_SINCE_SM_89(...) __trap()
#endif
#define FORGE_PACK_FP8(name, kind, type)                                                          \
  FORGE_INSTRUCTION std::uint32_t name([[maybe_unused]] float low, [[maybe_unused]] float high) { \
    std::uint16_t pair = 0;                                                                       \
    FORGE_BODY(pair = vgpu::fp8_pair<kind>(low, high),                                            \
               FORGE_SINCE_SM_89(asm("cvt.rn.satfinite." type "x2.f32 %0, %1, %2;"                \
                                     : "=h"(pair)                                                 \
                                     : "f"(high), "f"(low))))                                     \
    return pair;                                                                                  \
  }
FORGE_PACK_FP8(pack_e4m3, __NV_E4M3, "e4m3")
FORGE_PACK_FP8(pack_e5m2, __NV_E5M2, "e5m2")
#undef FORGE_PACK_FP8
#undef FORGE_SINCE_SM_89

// 16 bytes to device memory, by one instruction: of a store of uint4 nvcc sometimes makes four.
FORGE_INSTRUCTION void store_16(uint4* device, const std::uint32_t (&words)[4]){
    FORGE_BODY((*device = {words[0], words[1], words[2], words[3]}),
               asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(__cvta_generic_to_global(device)),
                            "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                            : "memory"))}

// 2^x to 2^-22 of its value; 0 below 2^-126, so that 2^-Inf = 0.
FORGE_INSTRUCTION float exp2_approximate(float x) {
  float y;
  FORGE_BODY(y = vgpu::exp2_approximate(x), asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)))
  return y;
}

// Copies 16 bytes from device memory to shared memory: the first `bytes` are read and the rest is zero. They are there
// after the thread has waited for their group, and for other threads after a barrier behind that.
FORGE_INSTRUCTION void copy_async_16(void* shared, const void* device, int bytes = 16){
    FORGE_BODY(vgpu_copy_async(shared, device, 16, to_size(bytes)),
               asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                                static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
                            "l"(device), "r"(bytes)
                            : "memory"))}  // Likewise 4 bytes.
FORGE_INSTRUCTION void copy_async_4(void* shared, const void* device, int bytes = 4){
    FORGE_BODY(vgpu_copy_async(shared, device, 4, to_size(bytes)),
               asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                                static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
                            "l"(device), "r"(bytes)
                            : "memory"))}  // Ends the group of the thread's copies.
FORGE_INSTRUCTION void copy_async_commit() {
  FORGE_BODY(vgpu_copy_async_commit(), asm volatile("cp.async.commit_group;" ::: "memory"))
}
// Until all groups but the newest `pending` ones have landed.
template <int pending>
FORGE_INSTRUCTION void copy_async_wait() {
  FORGE_BODY(vgpu_copy_async_wait(pending), asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"))
}

#undef FORGE_PLACE
#undef FORGE_BODY
#undef FORGE_INSTRUCTION

}  // namespace forge
