#pragma once

#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.hpp"
#include "core/types.hpp"

// CUDA build: common parts of the products of gemm.hpp on their way to cuBLASLt.

namespace forge {

inline void cublas_check(cublasStatus_t status, const char* call,
                         std::source_location where = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw LibraryFailed(std::string(call) + ": " + cublasLtGetStatusString(status), where);
}

template <class T>
constexpr cudaDataType_t cuda_type() {
  if constexpr (std::is_same_v<T, double>) return CUDA_R_64F;
  if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
  if constexpr (std::is_same_v<T, bf16>) return CUDA_R_16BF;
}

struct FreeCublasLt {
  void operator()(cublasLtMatmulDesc_t d) const { cublasLtMatmulDescDestroy(d); }
  void operator()(cublasLtMatrixLayout_t d) const { cublasLtMatrixLayoutDestroy(d); }
  void operator()(cublasLtMatmulPreference_t d) const { cublasLtMatmulPreferenceDestroy(d); }
};
template <class Handle>
using OwnedCublasLt = std::unique_ptr<std::remove_pointer_t<Handle>, FreeCublasLt>;

// The current device's multiprocessors but for `spared`, at least one.
int multiprocessors_left(int spared);
// Products choose their blocks for so many multiprocessors; 0: for all.
void set_multiprocessors(cublasLtMatmulDesc_t operation, int count);

template <class Value>
void set_attribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, Value value) {
  cublas_check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value),
               "cublasLtMatrixLayoutSetAttribute");
}

// A row-major matrix is the column-major transpose of itself. With a batch, `count` of them, `stride` elements apart.
inline OwnedCublasLt<cublasLtMatrixLayout_t> matrix_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                                                           std::int64_t pitch, std::int64_t count = 1,
                                                           std::int64_t stride = 0) {
  cublasLtMatrixLayout_t layout = nullptr;
  cublas_check(
      cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows),
                                 std::max<std::int64_t>({pitch, columns, 1})),
      "cublasLtMatrixLayoutCreate");
  OwnedCublasLt<cublasLtMatrixLayout_t> owner(layout);
  if (count > 1) {
    set_attribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
    set_attribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  return owner;
}

// Largest power of two up to 256 that divides an address, and those of a batch so many bytes apart: kernels with wide
// loads need aligned operands.
inline std::uint32_t alignment_of(const void* p, std::int64_t stride_bytes = 0) {
  const auto address = reinterpret_cast<std::uintptr_t>(p) | static_cast<std::uintptr_t>(stride_bytes) | 256u;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

template <class Value>
void set_attribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute, Value value) {
  cublas_check(cublasLtMatmulDescSetAttribute(d, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}
template <class Value>
void set_attribute(cublasLtMatmulPreference_t d, cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  cublas_check(cublasLtMatmulPreferenceSetAttribute(d, attribute, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
}

// How a product of one shape is computed.
struct CublasLtPlan {
  OwnedCublasLt<cublasLtMatmulDesc_t> operation;
  OwnedCublasLt<cublasLtMatrixLayout_t> a, b, c;
  cublasLtMatmulAlgo_t algorithm;
  std::uint64_t last_use = 0;
};

// Sets the rows of a row-major matrix.
inline void set_rows(const OwnedCublasLt<cublasLtMatrixLayout_t>& matrix, std::int64_t rows) {
  set_attribute(matrix.get(), CUBLASLT_MATRIX_LAYOUT_COLS, static_cast<std::uint64_t>(rows));
}

// Alignments of a product's operands, bytes.
struct OperandAlignment {
  std::uint32_t a, b, c;
};

// The algorithm that the heuristic holds to be fastest. C^T = op(B)^T op(A)^T in column-major terms: B comes first.
// Split sums are only reduced in the type of the sums, through the workspace, in a fixed order. `extents`: m x n x k,
// for an error.
cublasLtMatmulAlgo_t proposed_algorithm(cublasLtHandle_t handle, const CublasLtPlan& plan,
                                        const OperandAlignment& alignment, std::size_t workspace_bytes,
                                        const std::string& extents);
// Whether the plan's algorithm computes a product of its layouts as they are now, in that workspace.
bool serves(cublasLtHandle_t handle, const CublasLtPlan& plan, std::size_t workspace_bytes);

// Plans of the shapes that were used last.
template <class Shape>
class CublasLtPlans {
 public:
  template <class Make>
  const CublasLtPlan& find(const Shape& shape, const Make& make) {
    auto known = plans_.find(shape);
    if (known == plans_.end()) {
      if (plans_.size() == most) forget_half();
      known = plans_.emplace(shape, make()).first;
    }
    known->second.last_use = ++uses_;
    return known->second;
  }

 private:
  static constexpr std::size_t most = 4096;

  // The half that was used last stays.
  void forget_half() {
    std::vector<std::uint64_t> by_use;
    for (const auto& [shape, plan] : plans_) by_use.push_back(plan.last_use);
    const auto middle = by_use.begin() + static_cast<std::ptrdiff_t>(by_use.size() / 2);
    std::nth_element(by_use.begin(), middle, by_use.end());
    std::erase_if(plans_, [&](const auto& entry) { return entry.second.last_use < *middle; });
  }

  std::map<Shape, CublasLtPlan> plans_;
  std::uint64_t uses_ = 0;
};

}  // namespace forge
