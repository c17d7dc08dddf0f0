#pragma once

namespace forge {

// The vector path that host loops take, chosen by the processor's features (never by its model name).
enum class Isa { plain, avx2, avx512 };

// The instruction set of this processor; FORGE_ISA=plain|avx2|avx512 lowers it, for tests.
Isa host_isa();
const char* name_of(Isa isa);

// Makes the calling thread, and those that it starts from now on, treat denormal numbers as zero: moments and attention
// weights that fade away would otherwise slow every product that meets them by an order of magnitude.
void flush_denormals();

#if defined(__x86_64__)
#define FORGE_TARGET_AVX2 __attribute__((target("avx2,fma,bmi,bmi2,f16c")))
#if defined(__clang__)  // takes whole vectors without a word
#define FORGE_WHOLE_VECTORS
#else
#define FORGE_WHOLE_VECTORS ",prefer-vector-width=512"
#endif
#define FORGE_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi,bmi2,f16c" FORGE_WHOLE_VECTORS)))
#endif

}  // namespace forge
