#include "device/isa.hpp"

#include <cstdlib>
#include <string_view>

namespace forge {

namespace {

Isa detect() {
#if defined(__x86_64__)
  Isa isa = Isa::plain;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    isa = Isa::avx2;
  if (isa == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    isa = Isa::avx512;
  const char* wanted = std::getenv("FORGE_ISA");
  if (wanted && std::string_view(wanted) == "plain") return Isa::plain;
  if (wanted && std::string_view(wanted) == "avx2" && isa == Isa::avx512) return Isa::avx2;
  return isa;
#else
  return Isa::plain;
#endif
}

}  // namespace

Isa host_isa() {
  static const Isa isa = detect();  // a property of the machine, not of a rank
  return isa;
}

void flush_denormals() {
#if defined(__x86_64__)
  constexpr unsigned flush_to_zero = 0x8000, denormals_are_zero = 0x0040;
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | flush_to_zero | denormals_are_zero);
#endif
}

const char* name_of(Isa isa) {
  constexpr const char* names[] = {"plain", "avx2", "avx512"};
  return names[static_cast<int>(isa)];
}

}  // namespace forge
