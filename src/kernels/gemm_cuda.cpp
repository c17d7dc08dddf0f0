#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "device/cuda_check.hpp"
#include "kernels/gemm.hpp"

namespace forge {

namespace {

using std::int64_t;

void cublas_check(cublasStatus_t status, const char* call,
                  std::source_location where = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw LibraryFailed(std::string(call) + ": " + cublasLtGetStatusString(status), where);
}

template <class T>
constexpr cudaDataType_t type_of() {
  if constexpr (std::is_same_v<T, double>) return CUDA_R_64F;
  if constexpr (std::is_same_v<T, float>) return CUDA_R_32F;
  if constexpr (std::is_same_v<T, bf16>) return CUDA_R_16BF;
}

struct Free {
  void operator()(cublasLtMatmulDesc_t d) const { cublasLtMatmulDescDestroy(d); }
  void operator()(cublasLtMatrixLayout_t d) const { cublasLtMatrixLayoutDestroy(d); }
  void operator()(cublasLtMatmulPreference_t d) const { cublasLtMatmulPreferenceDestroy(d); }
  void operator()(cublasLtMatrixTransformDesc_t d) const { cublasLtMatrixTransformDescDestroy(d); }
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Free>;

// A row-major matrix is the column-major transpose of itself.
Owned<cublasLtMatrixLayout_t> layout_of(cudaDataType_t type, int64_t rows, int64_t columns, int64_t pitch) {
  cublasLtMatrixLayout_t layout = nullptr;
  cublas_check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(columns),
                                          static_cast<std::uint64_t>(rows), std::max<int64_t>({pitch, columns, 1})),
               "cublasLtMatrixLayoutCreate");
  return Owned<cublasLtMatrixLayout_t>(layout);
}

// Largest power of two up to 256 that divides an address: kernels with wide loads need aligned operands.
std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p) | 256u;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

// What a choice of algorithm depends on. Rows and columns as stored.
struct Shape {
  cudaDataType_t type, c_type;
  bool ta, tb;
  int64_t a_rows, a_columns, a_pitch, b_rows, b_columns, b_pitch, c_rows, c_columns, c_pitch;
  std::uint32_t a_alignment, b_alignment, c_alignment;

  auto tie() const {
    return std::tie(type, c_type, ta, tb, a_rows, a_columns, a_pitch, b_rows, b_columns, b_pitch, c_rows, c_columns,
                    c_pitch, a_alignment, b_alignment, c_alignment);
  }
  friend bool operator<(const Shape& x, const Shape& y) { return x.tie() < y.tie(); }
};

struct Plan {
  Owned<cublasLtMatmulDesc_t> operation;
  Owned<cublasLtMatrixLayout_t> a, b, c;
  cublasLtMatmulAlgo_t algorithm;
  std::uint64_t last_use = 0;
};

template <class Value>
void set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute, Value value) {
  cublas_check(cublasLtMatmulDescSetAttribute(d, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}
template <class Value>
void set(cublasLtMatmulPreference_t d, cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  cublas_check(cublasLtMatmulPreferenceSetAttribute(d, attribute, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
}

std::string describe(const Shape& s) {
  return std::to_string(s.c_rows) + " x " + std::to_string(s.c_columns) + " x " +
         std::to_string(s.ta ? s.a_rows : s.a_columns);
}

// C^T = op(B)^T op(A)^T in column-major terms: B comes first. The heuristic's first algorithm is taken, never a timed
// one; split sums are only reduced in the type of the sums, through the workspace, in a fixed order.
Plan make_plan(cublasLtHandle_t handle, const Shape& s, std::size_t workspace_bytes) {
  const bool fp64 = s.type == CUDA_R_64F;
  Plan plan;
  cublasLtMatmulDesc_t operation = nullptr;
  cublas_check(cublasLtMatmulDescCreate(&operation, fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                        fp64 ? CUDA_R_64F : CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  plan.operation.reset(operation);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, s.tb ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, s.ta ? CUBLAS_OP_T : CUBLAS_OP_N);
  plan.a = layout_of(s.type, s.a_rows, s.a_columns, s.a_pitch);
  plan.b = layout_of(s.type, s.b_rows, s.b_columns, s.b_pitch);
  plan.c = layout_of(s.c_type, s.c_rows, s.c_columns, s.c_pitch);

  cublasLtMatmulPreference_t preference = nullptr;
  cublas_check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const Owned<cublasLtMatmulPreference_t> owner(preference);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.b_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.a_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.c_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.c_alignment);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, operation, plan.b.get(), plan.a.get(), plan.c.get(), plan.c.get(), preference, 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
    throw Error("cuBLASLt has no algorithm for a product of " + describe(s) + " in a workspace of " +
                std::to_string(workspace_bytes) + " bytes (machine.workspace_mib)");
  cublas_check(status, "cublasLtMatmulAlgoGetHeuristic");
  plan.algorithm = result.algo;
  return plan;
}

// Bounds what plans keep: groups of rows come in as many sizes as tokens are sent to experts.
constexpr std::size_t most_plans = 4096;

}  // namespace

struct Gemm::Implementation {
  void* workspace;
  std::size_t workspace_bytes;
  cublasLtHandle_t handle = nullptr;
  std::map<Shape, Plan> plans;
  std::uint64_t uses = 0;

  Implementation(void* w, std::size_t bytes) : workspace(w), workspace_bytes(w ? bytes : 0) {
    cublas_check(cublasLtCreate(&handle), "cublasLtCreate");
  }
  ~Implementation() { cublasLtDestroy(handle); }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  const Plan& find(const Shape& shape) {
    auto known = plans.find(shape);
    if (known == plans.end()) {
      if (plans.size() == most_plans) forget_half();
      known = plans.emplace(shape, make_plan(handle, shape, workspace_bytes)).first;
    }
    known->second.last_use = ++uses;
    return known->second;
  }

  // The half that was used last stays.
  void forget_half() {
    std::vector<std::uint64_t> by_use;
    for (const auto& [shape, plan] : plans) by_use.push_back(plan.last_use);
    const auto middle = by_use.begin() + static_cast<std::ptrdiff_t>(by_use.size() / 2);
    std::nth_element(by_use.begin(), middle, by_use.end());
    std::erase_if(plans, [&](const auto& entry) { return entry.second.last_use < *middle; });
  }

  // C = beta · C, for sums without terms.
  template <class TC>
  void scale(cudaStream_t stream, double beta, View<TC, 2> c) {
    if (beta == 1) return;
    if (beta == 0)
      return cuda_check(cudaMemset2DAsync(c.data, to_size(c.pitch) * sizeof(TC), 0, to_size(c.extent(1)) * sizeof(TC),
                                          to_size(c.rows()), stream),
                        "cudaMemset2DAsync");
    const bool fp64 = std::is_same_v<TC, double>;
    cublasLtMatrixTransformDesc_t transform = nullptr;
    cublas_check(cublasLtMatrixTransformDescCreate(&transform, fp64 ? CUDA_R_64F : CUDA_R_32F),
                 "cublasLtMatrixTransformDescCreate");
    const Owned<cublasLtMatrixTransformDesc_t> owner(transform);
    const auto layout = layout_of(type_of<TC>(), c.rows(), c.extent(1), c.pitch);
    const float alpha32 = static_cast<float>(beta), zero32 = 0;
    const double zero64 = 0;
    cublas_check(cublasLtMatrixTransform(handle, transform, fp64 ? static_cast<const void*>(&beta) : &alpha32, c.data,
                                         layout.get(), fp64 ? static_cast<const void*>(&zero64) : &zero32, nullptr,
                                         nullptr, c.data, layout.get(), stream),
                 "cublasLtMatrixTransform");
  }
};

Gemm::Gemm(void* workspace, std::size_t workspace_bytes)
    : impl_(std::make_unique<Implementation>(workspace, workspace_bytes)) {}

Gemm::~Gemm() = default;

template <class T, class TC>
void Gemm::operator()(Stream& stream, Transpose ta, Transpose tb, double alpha, View<const T, 2> a, View<const T, 2> b,
                      double beta, View<TC, 2> c) {
  const bool flip_a = ta == Transpose::yes, flip_b = tb == Transpose::yes;
  const int64_t k = a.extent(flip_a ? 0 : 1);
  require(
      a.extent(flip_a ? 1 : 0) == c.rows() && b.extent(flip_b ? 0 : 1) == c.extent(1) && b.extent(flip_b ? 1 : 0) == k,
      "the extents of a matrix product do not match");
  if (c.rows() == 0 || c.extent(1) == 0) return;
  const auto native = static_cast<cudaStream_t>(stream.native());
  if (k == 0) return impl_->scale(native, beta, c);
  const Plan& plan = impl_->find({type_of<T>(), type_of<TC>(), flip_a, flip_b, a.rows(), a.extent(1), a.pitch, b.rows(),
                                  b.extent(1), b.pitch, c.rows(), c.extent(1), c.pitch, alignment_of(a.data),
                                  alignment_of(b.data), alignment_of(c.data)});
  const float alpha32 = static_cast<float>(alpha), beta32 = static_cast<float>(beta);
  const bool fp64 = std::is_same_v<T, double>;
  cublas_check(cublasLtMatmul(impl_->handle, plan.operation.get(), fp64 ? static_cast<const void*>(&alpha) : &alpha32,
                              b.data, plan.b.get(), a.data, plan.a.get(),
                              fp64 ? static_cast<const void*>(&beta) : &beta32, c.data, plan.c.get(), c.data,
                              plan.c.get(), &plan.algorithm, impl_->workspace, impl_->workspace_bytes, native),
               "cublasLtMatmul");
}

// Each number of rows that a group has takes a plan of its own.
template <class T, class TC>
void Gemm::grouped_rows(Stream& stream, std::span<const std::int64_t> offsets, Transpose tb, double alpha,
                        View<const T, 2> a, View<const T, 3> b, double beta, View<TC, 2> c) {
  const auto groups = static_cast<int64_t>(offsets.size()) - 1;
  require(groups == b.rows() && offsets.front() >= 0 && offsets.back() <= a.rows() && a.rows() == c.rows(),
          "the extents of a grouped product do not match");
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = offsets[to_size(g)], end = offsets[to_size(g) + 1];
    const View<const T, 2> matrix(b.row(g), {{b.extent(1), b.extent(2)}});
    (*this)(stream, Transpose::no, tb, alpha, a.slice(begin, end), matrix, beta, c.slice(begin, end));
  }
}

template <class T, class TC>
void Gemm::grouped_sums(Stream& stream, std::span<const std::int64_t> offsets, double alpha, View<const T, 2> a,
                        View<const T, 2> b, double beta, View<TC, 3> c) {
  const auto groups = static_cast<int64_t>(offsets.size()) - 1;
  require(groups == c.rows() && offsets.front() >= 0 && offsets.back() <= a.rows() && a.rows() == b.rows(),
          "the extents of a grouped product do not match");
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = offsets[to_size(g)], end = offsets[to_size(g) + 1];
    const View<TC, 2> matrix(c.row(g), {{c.extent(1), c.extent(2)}});
    (*this)(stream, Transpose::yes, Transpose::no, alpha, a.slice(begin, end), b.slice(begin, end), beta, matrix);
  }
}

#define FORGE_GEMM(T, TC)                                                                                              \
  template void Gemm::operator()(Stream&, Transpose, Transpose, double, View<const T, 2>, View<const T, 2>, double,    \
                                 View<TC, 2>);                                                                         \
  template void Gemm::grouped_rows(Stream&, std::span<const std::int64_t>, Transpose, double, View<const T, 2>,        \
                                   View<const T, 3>, double, View<TC, 2>);                                             \
  template void Gemm::grouped_sums(Stream&, std::span<const std::int64_t>, double, View<const T, 2>, View<const T, 2>, \
                                   double, View<TC, 3>);
FORGE_GEMM(double, double)
FORGE_GEMM(float, float)
FORGE_GEMM(bf16, bf16)
FORGE_GEMM(bf16, float)
#undef FORGE_GEMM

}  // namespace forge
