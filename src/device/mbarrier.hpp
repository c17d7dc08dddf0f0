#pragma once

#include <cstdint>

#include "device/launch.hpp"

// CUDA build, in files that nvcc compiles: barriers in shared memory at which warps arrive without waiting (PTX ISA,
// "mbarrier"), and the registers that warps of different tasks pass on to each other (setmaxnreg). sm_90a; the emulated
// GPU has the barriers, and checks the order that they give.

namespace forge {

#if defined(FORGE_VGPU)
#define FORGE_MBARRIER_FUNCTION inline
#define FORGE_PLACE , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define FORGE_BODY(host, ...) host
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FORGE_MBARRIER_FUNCTION __device__ inline
#define FORGE_PLACE
#define FORGE_BODY(host, ...) __VA_ARGS__
#else
#define FORGE_MBARRIER_FUNCTION __device__ inline
#define FORGE_PLACE
#define FORGE_BODY(host, ...) __trap()
#endif

// In shared memory. So many arrivals as it was made for end a phase; phases have the parities 0, 1, 0 and so on.
using Mbarrier = std::uint64_t;

#if !defined(FORGE_VGPU)
__device__ inline std::uint32_t shared_address([[maybe_unused]] const Mbarrier* barrier) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(barrier));
}
#endif

// One thread makes it, and a barrier of the block shows it to the others.
FORGE_MBARRIER_FUNCTION void mbarrier_init([[maybe_unused]] Mbarrier* barrier, [[maybe_unused]] int arrivals) {
  FORGE_BODY(vgpu_mbarrier_init(barrier, static_cast<unsigned>(arrivals)),
             asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                          : "memory"));
}

// One arrival, of all lanes of a warp: waiters for the phase that it ends see all earlier writes of these lanes.
FORGE_MBARRIER_FUNCTION void mbarrier_arrive_as_warp([[maybe_unused]] Mbarrier* barrier FORGE_PLACE) {
#if defined(FORGE_VGPU)
  __syncwarp(0xffffffffu, file, line);
#else
  __syncwarp();
#endif
  if (threadIdx.x % 32 == 0)
    FORGE_BODY(vgpu_mbarrier_arrive(barrier),
               asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                            : "memory"));
}

// Until the phase of this parity has ended, which has to be the one that runs or the one before. Of a new barrier the
// phase before the first has parity 1, and has ended.
FORGE_MBARRIER_FUNCTION void mbarrier_wait([[maybe_unused]] const Mbarrier* barrier,
                                           [[maybe_unused]] int parity FORGE_PLACE) {
  FORGE_BODY(vgpu_mbarrier_wait(barrier, static_cast<unsigned>(parity), file, line),
             asm volatile("{\n.reg .pred ended;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
                          "@ended bra done;\nbra again;\ndone:\n}" ::"r"(shared_address(barrier)),
                          "r"(parity)
                          : "memory"));
}

// The warps of a warpgroup give registers back, or take them up to so many a thread, a multiple of 8. The kernel's
// launch bounds say how many all threads begin with.
template <int registers>
FORGE_MBARRIER_FUNCTION void give_registers() {
  FORGE_BODY(static_cast<void>(0), asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers)));
}
template <int registers>
FORGE_MBARRIER_FUNCTION void take_registers() {
  FORGE_BODY(static_cast<void>(0), asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers)));
}

#undef FORGE_BODY
#undef FORGE_PLACE
#undef FORGE_MBARRIER_FUNCTION

}  // namespace forge
