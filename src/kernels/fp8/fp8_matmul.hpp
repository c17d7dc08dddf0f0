#pragma once

#include <tuple>

#include "kernels/fp8/fp8_operand.hpp"
#include "kernels/gemm/cublaslt.hpp"

namespace forge {

// The handle and workspace of calls of cuBLASLt.
struct CublasLt {
  cublasLtHandle_t handle;
  void* workspace;
  std::size_t workspace_bytes;
  int multiprocessors;  // for products; 0: all
};

// Products of codes by cuBLASLt, of Gemm::code_product.
class Fp8Matmul {
 public:
  template <class TC>
  void operator()(const CublasLt& library, Stream& stream, const CodeOperands& operands, CodeScaling scaling, bool adds,
                  View<TC, 2> c);

 private:
  // The key of a choice of algorithm.
  struct Shape {
    cudaDataType_t a_type, b_type, c_type;
    FactorOrder a_order, b_order;
    std::int64_t m, n, k, a_pitch, b_pitch, c_pitch;
    std::uint32_t a_alignment, b_alignment, c_alignment;

    auto tie() const {
      return std::tie(a_type, b_type, c_type, a_order, b_order, m, n, k, a_pitch, b_pitch, c_pitch, a_alignment,
                      b_alignment, c_alignment);
    }
    friend bool operator<(const Shape& x, const Shape& y) { return x.tie() < y.tie(); }
  };
  // Lines of one operand and slots of its depth, and their factors.
  struct Part {
    const Fp8Codes& of;
    std::int64_t begin, end, first_slot, last_slot;
    const float* factors;
    FactorOrder order;

    const std::uint8_t* codes() const { return of.codes.row(begin) + first_slot * scale_width; }
    std::int64_t lines() const { return end - begin; }
    std::int64_t depth() const { return (last_slot - first_slot) * scale_width; }
  };

  template <class TC>
  void multiply(const CublasLt& library, Stream& stream, const Part& a, const Part& b, bool adds, View<TC, 2> c);
  static CublasLtPlan make_plan(const CublasLt& library, const Shape& shape, const float* of_a, const float* of_b);

  CublasLtPlans<Shape> plans_;
};

}  // namespace forge
