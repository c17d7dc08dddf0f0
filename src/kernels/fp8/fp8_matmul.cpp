#include "kernels/fp8/fp8_matmul.hpp"

#include "config/fp8_format.hpp"

namespace forge {

namespace {

using std::int64_t;

cudaDataType_t type_of(Fp8Format format) {
  return format == Fp8Format::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

#if CUBLAS_VERSION >= 120900
cublasLtMatmulMatrixScale_t mode_of(FactorOrder order) {
  switch (order) {
    case FactorOrder::groups:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    case FactorOrder::lines:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case FactorOrder::slots:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case FactorOrder::blocks:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}
void set_modes(cublasLtMatmulDesc_t operation, FactorOrder of_a, FactorOrder of_b) {
  set_attribute(operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<std::int32_t>(mode_of(of_b)));
  set_attribute(operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<std::int32_t>(mode_of(of_a)));
}
#else
void set_modes(cublasLtMatmulDesc_t, FactorOrder, FactorOrder) {}
#endif

// cuBLASLt's first operand is B, as its result is Cᵀ.
void set_factors(cublasLtMatmulDesc_t operation, const float* of_a, const float* of_b) {
  set_attribute(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(of_b));
  set_attribute(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(of_a));
}

// The first slot behind `slot` that has other groups, of either operand.
int64_t end_of_run(const Fp8Slots& a, const Fp8Slots& b, int64_t slot) {
  const auto group = [](const Fp8Slots& x, int64_t s) { return x.group_of(static_cast<std::int32_t>(s)); };
  int64_t end = slot + 1;
  while (end < a.count() && group(a, end) == group(a, slot) && group(b, end) == group(b, slot)) ++end;
  return end;
}

}  // namespace

int cublas_version() {
  return CUBLAS_VERSION;
}

// TN, which alone sm_89 and sm_90 have: Cᵀ(n,m) = op(B)(n,k) A(k,m), both with the depth in consecutive bytes. Sums are
// moved to fp32 from time to time (no fast accumulation).
CublasLtPlan Fp8Matmul::make_plan(const CublasLt& library, const Shape& s, const float* of_a, const float* of_b) {
  CublasLtPlan plan;
  cublasLtMatmulDesc_t operation = nullptr;
  cublas_check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  plan.operation.reset(operation);
  set_attribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set_attribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  set_attribute(operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{0});
  set_multiprocessors(operation, library.multiprocessors);
  set_modes(operation, s.a_order, s.b_order);
  set_factors(operation, of_a, of_b);
  plan.a = matrix_layout(s.a_type, s.m, s.k, s.a_pitch);
  plan.b = matrix_layout(s.b_type, s.n, s.k, s.b_pitch);
  plan.c = matrix_layout(s.c_type, s.m, s.n, s.c_pitch);
  const std::string extents =
      std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k) + " of 8-bit numbers";
  plan.algorithm = proposed_algorithm(library.handle, plan, {s.a_alignment, s.b_alignment, s.c_alignment},
                                      library.workspace_bytes, extents);
  return plan;
}

template <class TC>
void Fp8Matmul::multiply(const CublasLt& library, Stream& stream, const Part& a, const Part& b, bool adds,
                         View<TC, 2> c) {
  const Shape shape{type_of(a.of.format),
                    type_of(b.of.format),
                    cuda_type<TC>(),
                    a.order,
                    b.order,
                    a.lines(),
                    b.lines(),
                    a.depth(),
                    a.of.codes.pitch,
                    b.of.codes.pitch,
                    c.pitch,
                    alignment_of(a.codes()),
                    alignment_of(b.codes()),
                    alignment_of(c.data)};
  const CublasLtPlan& plan = plans_.find(shape, [&] { return make_plan(library, shape, a.factors, b.factors); });
  set_factors(plan.operation.get(), a.factors, b.factors);
  const float one = 1, beta = adds ? 1 : 0;
  cublas_check(cublasLtMatmul(library.handle, plan.operation.get(), &one, b.codes(), plan.b.get(), a.codes(),
                              plan.a.get(), &beta, c.data, plan.c.get(), c.data, plan.c.get(), &plan.algorithm,
                              library.workspace, library.workspace_bytes, static_cast<cudaStream_t>(stream.native())),
               "cublasLtMatmul");
}

template <class TC>
void Fp8Matmul::operator()(const CublasLt& library, Stream& stream, const CodeOperands& operands, CodeScaling scaling,
                           bool adds, View<TC, 2> c) {
  const auto& [a, x] = operands.a;
  const auto& [b, y] = operands.b;
  const int64_t m = c.rows(), n = c.columns(), slots = a.slots.count();
  require(a.codes.rows() == m && b.codes.rows() == n && slots == b.slots.count() && b.format == Fp8Format::e4m3,
          "the extents or formats of a product of codes do not match");
  require(cublaslt_takes(scaling, c), "a product of codes has extents or addresses that cuBLASLt does not take");
  if (scaling != CodeScaling::tensor) {
    multiply(library, stream, {a, 0, m, 0, slots, x.values, x.layout.order},
             {b, 0, n, 0, slots, y.values, y.layout.order}, adds, c);
    return;
  }
  require(b.lines.count == 1, "a tensor's scale is of all lines of the second operand");
  for (int64_t group = 0; group < a.lines.count; ++group) {
    const ScaleLines::Range rows = a.lines.lines_of(group);
    if (rows.begin == rows.end) continue;
    for (int64_t slot = 0, end = 0; slot < slots; slot = end) {
      end = end_of_run(a.slots, b.slots, slot);
      const auto first = static_cast<std::int32_t>(slot);
      const float* of_rows = x.at(group * x.layout.columns + a.slots.group_of(first));
      const float* of_columns = y.at(b.slots.group_of(first));
      multiply(library, stream, {a, rows.begin, rows.end, slot, end, of_rows, x.layout.order},
               {b, 0, n, slot, end, of_columns, y.layout.order}, adds || slot > 0, c.slice(rows.begin, rows.end));
    }
  }
}
template void Fp8Matmul::operator()(const CublasLt&, Stream&, const CodeOperands&, CodeScaling, bool, View<bf16, 2>);
template void Fp8Matmul::operator()(const CublasLt&, Stream&, const CodeOperands&, CodeScaling, bool, View<float, 2>);

}  // namespace forge
