#include "blas_problem.hpp"
#include "settings.hpp"

// Products of 8-bit numbers, by what the documentation of CUDA 13 says of cublasLtMatmul() ("Narrow Precision Data
// Types Usage").

namespace vgpu {

namespace {

constexpr std::int32_t scalar = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
                       outer = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
                       vectors = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
                       blocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;

std::string types_of_fp8(const Problem& p) {
  if (!is_fp8(p.a.type) || !is_fp8(p.b.type)) return "a product of 8-bit numbers with others";
  if (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2) return "a product of E5M2 with E5M2";
  if (p.c.type != p.d.type || (p.d.type != CUDA_R_16BF && p.d.type != CUDA_R_32F))
    return "a product of 8-bit numbers whose result is neither bf16 nor fp32";
  if (p.desc->compute != CUBLAS_COMPUTE_32F || p.desc->scale != CUDA_R_32F)
    return "a product of 8-bit numbers that is not computed in fp32";
  return "";
}

// Extents and strides are in bytes what tensor cores like best: 16.
std::string alignment_of_fp8(const Problem& p) {
  if (p.desc->transpose_a != CUBLAS_OP_T || p.desc->transpose_b != CUBLAS_OP_N)
    return "a product of 8-bit numbers in another format than TN";
  const auto element = static_cast<std::uint64_t>(size_of(p.d.type));
  if (p.inner() % 16 != 0 || p.d.rows * element % 16 != 0)
    return "a product of 8-bit numbers of extents that are no multiple of 16 bytes: A " + text_of(p.a) + ", D " +
           text_of(p.d);
  for (const Matrix* m : {&p.a, &p.b, &p.c, &p.d})
    if (static_cast<std::uint64_t>(m->leading) * size_of(m->type) % 16 != 0)
      return "a product of 8-bit numbers with a leading dimension that is no multiple of 16 bytes: " + text_of(*m);
  return "";
}

std::string modes_of_fp8(const Problem& p) {
  const std::int32_t a = p.desc->a_factors.mode, b = p.desc->b_factors.mode;
  const auto by_blocks = [](std::int32_t mode) { return mode == vectors || mode == blocks; };
  const bool both_blocks = by_blocks(a) && by_blocks(b) && !(a == blocks && b == blocks);
  if (!(a == scalar && b == scalar) && !(a == outer && b == outer) && !both_blocks)
    return "modes of scales that don't go together: " + std::to_string(a) + " and " + std::to_string(b);
  if (a != scalar && settings().arch != 90)
    return "scales of rows or blocks on sm_" + std::to_string(settings().arch) + ", not sm_90";
  if (both_blocks && (p.d.rows % 4 != 0 || p.d.columns % 4 != 0))
    return "scales of blocks and a result whose extents are no multiples of 4: " + text_of(p.d);
  return "";
}

}  // namespace

std::string fp8_unsupported(const Problem& p) {
  if (!is_fp8(p.a.type) && !is_fp8(p.b.type)) return "";
  if (settings().arch < 89) return "products of 8-bit numbers on sm_" + std::to_string(settings().arch);
  for (const auto rule : {types_of_fp8, alignment_of_fp8, modes_of_fp8})
    if (const std::string broken = rule(p); !broken.empty()) return broken;
  return "";
}

std::string scale_unsupported(const Problem& p) {
  for (const Factors* f : {&p.desc->a_factors, &p.desc->b_factors})
    if (f->mode == scalar && reinterpret_cast<std::uintptr_t>(f->data) % 16 != 0)
      return "a scale of a whole operand that does not stand at a multiple of 16 bytes";
  return "";
}

// Scales that aren't given count as 1 there; here they are forgotten.
std::string factors_broken(Device& device, const Problem& p) {
  const bool fp8 = is_fp8(p.a.type);
  for (const bool first : {true, false}) {
    const Factors& f = first ? p.desc->a_factors : p.desc->b_factors;
    const std::string name = first ? "A" : "B";
    if (!fp8 && f.data) return "scales of " + name + ", whose numbers have more than 8 bits";
    if (!fp8) continue;
    if (!f.data) return name + " has no scales";
    const std::uint64_t count = f.count(first ? p.d.rows : p.d.columns, p.inner());
    if (!on_device(device, f.data, count * sizeof(float)))
      return std::to_string(count) + " scales of " + name + " are not inside live memory of the device";
    if (f.mode != scalar && reinterpret_cast<std::uintptr_t>(f.data) % 16 != 0)
      return "the scales of " + name + " are not aligned to 16 bytes";
  }
  return "";
}

}  // namespace vgpu
