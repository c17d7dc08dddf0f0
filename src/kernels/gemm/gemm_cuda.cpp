#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "device/cuda_check.hpp"
#include "kernels/experts/grouped_cutlass.hpp"
#include "kernels/fp8/fp8_matmul.hpp"
#include "kernels/gemm/cublaslt.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/products_version.hpp"
#include "kernels/rows/scale.hpp"

namespace forge {

namespace {

using std::int64_t;

// Rows of a group are rounded up to a multiple of so many; no kernel loads more than so many bytes at a time.
constexpr int64_t rows_of_plans = 128;
constexpr std::uint32_t widest_load = 16;

// Products in one launch, and how many elements their matrices stand apart.
struct Batch {
  int64_t count = 1, a = 0, b = 0, c = 0;

  friend auto operator<=>(const Batch&, const Batch&) = default;
};

// What a choice of algorithm depends on. Rows and columns as stored.
struct Shape {
  cudaDataType_t type, c_type;
  bool ta, tb;
  int64_t a_rows, a_columns, a_pitch, b_rows, b_columns, b_pitch, c_rows, c_columns, c_pitch;
  std::uint32_t a_alignment, b_alignment, c_alignment;
  Batch batch;

  auto tie() const {
    return std::tie(type, c_type, ta, tb, a_rows, a_columns, a_pitch, b_rows, b_columns, b_pitch, c_rows, c_columns,
                    c_pitch, a_alignment, b_alignment, c_alignment, batch);
  }
  friend bool operator<(const Shape& x, const Shape& y) { return x.tie() < y.tie(); }
};

std::string describe(const Shape& s) {
  return std::to_string(s.c_rows) + " x " + std::to_string(s.c_columns) + " x " +
         std::to_string(s.ta ? s.a_rows : s.a_columns);
}

CublasLtPlan describe_product(const Shape& s, int multiprocessors) {
  const bool fp64 = s.type == CUDA_R_64F;
  CublasLtPlan plan;
  cublasLtMatmulDesc_t operation = nullptr;
  cublas_check(cublasLtMatmulDescCreate(&operation, fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                        fp64 ? CUDA_R_64F : CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  plan.operation.reset(operation);
  set_attribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, s.tb ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_attribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, s.ta ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_multiprocessors(operation, multiprocessors);
  plan.a = matrix_layout(s.type, s.a_rows, s.a_columns, s.a_pitch, s.batch.count, s.batch.a);
  plan.b = matrix_layout(s.type, s.b_rows, s.b_columns, s.b_pitch, s.batch.count, s.batch.b);
  plan.c = matrix_layout(s.c_type, s.c_rows, s.c_columns, s.c_pitch, s.batch.count, s.batch.c);
  return plan;
}

void set_rows(const CublasLtPlan& plan, const Shape& s) {
  set_rows(plan.a, s.a_rows);
  set_rows(plan.b, s.b_rows);
  set_rows(plan.c, s.c_rows);
}

}  // namespace

struct Gemm::Implementation {
  void* workspace;
  std::size_t workspace_bytes;
  cublasLtHandle_t handle = nullptr;
  CublasLtPlans<Shape> plans, plans_of_groups;
  Fp8Matmul codes;
  bool cutlass;
  int multiprocessors;  // for products; 0: all

  Implementation(void* w, std::size_t bytes, bool by_cutlass, int spared)
      : workspace(w),
        workspace_bytes(w ? bytes : 0),
        cutlass(by_cutlass),
        multiprocessors(spared > 0 ? multiprocessors_left(spared) : 0) {
    cublas_check(cublasLtCreate(&handle), "cublasLtCreate");
  }
  ~Implementation() { cublasLtDestroy(handle); }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  CutlassWorkspace for_cutlass() const { return {workspace, workspace_bytes, multiprocessors}; }

  const CublasLtPlan& find(CublasLtPlans<Shape>& known, const Shape& shape) {
    return known.find(shape, [&] {
      CublasLtPlan plan = describe_product(shape, multiprocessors);
      plan.algorithm = proposed_algorithm(handle, plan, {shape.a_alignment, shape.b_alignment, shape.c_alignment},
                                          workspace_bytes, describe(shape));
      return plan;
    });
  }

  // Of a group, which has as many rows as tokens go to an expert, nearly always others than before: the algorithm of so
  // many rows rounded up, where the library says that it serves these.
  const CublasLtPlan& find_of_group(Shape shape) {
    for (std::uint32_t* alignment : {&shape.a_alignment, &shape.b_alignment, &shape.c_alignment})
      *alignment = std::min(*alignment, widest_load);
    Shape rounded = shape;
    for (int64_t* rows : {&rounded.a_rows, shape.ta ? &rounded.b_rows : &rounded.c_rows})
      *rows = (*rows + rows_of_plans - 1) / rows_of_plans * rows_of_plans;
    const CublasLtPlan& plan = find(plans_of_groups, rounded);
    set_rows(plan, shape);
    return serves(handle, plan, workspace_bytes) ? plan : find(plans, shape);
  }

  // C = beta · C, for sums without terms.
  template <class TC>
  void scale(Stream& stream, double beta, View<TC, 2> c) {
    if (beta == 1) return;
    if (beta == 0)
      return cuda_check(cudaMemset2DAsync(c.data, to_size(c.pitch) * sizeof(TC), 0, to_size(c.extent(1)) * sizeof(TC),
                                          to_size(c.rows()), static_cast<cudaStream_t>(stream.native())),
                        "cudaMemset2DAsync");
    scale_matrix(stream, beta, c);
  }

  // C = alpha op(A) op(B) + beta C, of the first matrices of a batch; `of_group`: find_of_group().
  template <class T, class TC>
  void multiply(Stream& stream, Transpose ta, Transpose tb, double alpha, View<const T, 2> a, View<const T, 2> b,
                double beta, View<TC, 2> c, bool of_group, const Batch& batch = {}) {
    const bool flip_a = ta == Transpose::yes, flip_b = tb == Transpose::yes;
    const int64_t k = a.extent(flip_a ? 0 : 1);
    require(a.extent(flip_a ? 1 : 0) == c.rows() && b.extent(flip_b ? 0 : 1) == c.extent(1) &&
                b.extent(flip_b ? 1 : 0) == k,
            "the extents of a matrix product do not match");
    if (c.rows() == 0 || c.extent(1) == 0) return;
    if (k == 0) return scale(stream, beta, c);
    const auto native = static_cast<cudaStream_t>(stream.native());
    const float alpha32 = static_cast<float>(alpha), beta32 = static_cast<float>(beta);
    const bool fp64 = std::is_same_v<T, double>;
    const Shape shape{cuda_type<T>(),
                      cuda_type<TC>(),
                      flip_a,
                      flip_b,
                      a.rows(),
                      a.extent(1),
                      a.pitch,
                      b.rows(),
                      b.extent(1),
                      b.pitch,
                      c.rows(),
                      c.extent(1),
                      c.pitch,
                      alignment_of(a.data, batch.a * static_cast<int64_t>(sizeof(T))),
                      alignment_of(b.data, batch.b * static_cast<int64_t>(sizeof(T))),
                      alignment_of(c.data, batch.c * static_cast<int64_t>(sizeof(TC))),
                      batch};
    const CublasLtPlan& plan = of_group ? find_of_group(shape) : find(plans, shape);
    cublas_check(
        cublasLtMatmul(handle, plan.operation.get(), fp64 ? static_cast<const void*>(&alpha) : &alpha32, b.data,
                       plan.b.get(), a.data, plan.a.get(), fp64 ? static_cast<const void*>(&beta) : &beta32, c.data,
                       plan.c.get(), c.data, plan.c.get(), &plan.algorithm, workspace, workspace_bytes, native),
        "cublasLtMatmul");
  }
};

Gemm::Gemm(void* workspace, std::size_t workspace_bytes, bool cutlass, int spared)
    : impl_(std::make_unique<Implementation>(workspace, workspace_bytes, cutlass, spared)) {}

Gemm::~Gemm() = default;

std::span<std::byte> Gemm::workspace() const {
  return {static_cast<std::byte*>(impl_->workspace), impl_->workspace_bytes};
}
std::string products_library_version() {
  return "cuBLASLt " + std::to_string(cublasLtGetVersion());
}

template <class T, class TC>
void Gemm::operator()(Stream& stream, Transpose ta, Transpose tb, double alpha, View<const T, 2> a, View<const T, 2> b,
                      double beta, View<TC, 2> c) {
  impl_->multiply(stream, ta, tb, alpha, a, b, beta, c, false);
}

template <class T, class TC>
void Gemm::grouped_rows(Stream& stream, std::span<const std::int64_t> offsets, Transpose tb, double alpha,
                        View<const T, 2> a, View<const T, 3> b, double beta, View<TC, 2> c) {
  const auto groups = static_cast<int64_t>(offsets.size()) - 1;
  require(groups == b.rows() && offsets.front() >= 0 && offsets.back() <= a.rows() && a.rows() == c.rows(),
          "the extents of a grouped product do not match");
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = offsets[to_size(g)], end = offsets[to_size(g) + 1];
    const View<const T, 2> matrix(b.row(g), {{b.extent(1), b.extent(2)}});
    impl_->multiply(stream, Transpose::no, tb, alpha, a.slice(begin, end), matrix, beta, c.slice(begin, end), true);
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
    impl_->multiply(stream, Transpose::yes, Transpose::no, alpha, a.slice(begin, end), b.slice(begin, end), beta,
                    matrix, true);
  }
}

template <class T>
void Gemm::batched_rows(Stream& stream, std::int64_t height, Transpose tb, double alpha, View<const T, 2> a,
                        View<const T, 3> b, double beta, View<T, 2> c) {
  require(height * b.rows() == a.rows() && a.rows() == c.rows() && b.rows() > 0,
          "the extents of a batch of products do not match");
  const Batch batch{b.rows(), height * a.pitch, b.pitch, height * c.pitch};
  impl_->multiply(stream, Transpose::no, tb, alpha, a.slice(0, height),
                  View<const T, 2>(b.row(0), {{b.extent(1), b.extent(2)}}), beta, c.slice(0, height), false, batch);
}

template <class T>
void Gemm::batched_sums(Stream& stream, std::int64_t height, double alpha, View<const T, 2> a, View<const T, 2> b,
                        double beta, View<T, 3> c) {
  require(height * c.rows() == a.rows() && a.rows() == b.rows() && c.rows() > 0,
          "the extents of a batch of products do not match");
  const Batch batch{c.rows(), height * a.pitch, height * b.pitch, c.pitch};
  impl_->multiply(stream, Transpose::yes, Transpose::no, alpha, a.slice(0, height), b.slice(0, height), beta,
                  View<T, 2>(c.row(0), {{c.extent(1), c.extent(2)}}), false, batch);
}
#define FORGE_BATCHED(T)                                                                                         \
  template void Gemm::batched_rows(Stream&, std::int64_t, Transpose, double, View<const T, 2>, View<const T, 3>, \
                                   double, View<T, 2>);                                                          \
  template void Gemm::batched_sums(Stream&, std::int64_t, double, View<const T, 2>, View<const T, 2>, double,    \
                                   View<T, 3>);
FORGE_BATCHED(double)
FORGE_BATCHED(float)
#undef FORGE_BATCHED

template <class T>
void Gemm::grouped_rows(Stream& stream, const RowGroups& groups, Transpose tb, View<const T, 2> a, View<const T, 3> b,
                        View<T, 2> c, double alpha, bool adds) {
  if constexpr (std::is_same_v<T, bf16>) {
    const bool by_rows = tb == Transpose::yes;
    if (impl_->cutlass && grouped_rows_by_cutlass(stream, impl_->for_cutlass(), groups, by_rows, a, b, c, alpha, adds))
      return;
    forge::grouped_rows(stream, groups, by_rows, a, b, c, alpha, adds);
  } else
    throw Error("products of groups that begin where the device says are those of tensor cores, in bf16");
}

template <class T>
void Gemm::grouped_sums(Stream& stream, const RowGroups& groups, View<const T, 2> a, View<const T, 2> b, bool adds,
                        View<acc_t<T>, 3> c) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (impl_->cutlass && grouped_sums_by_cutlass(stream, impl_->for_cutlass(), groups, a, b, adds, c)) return;
    forge::grouped_sums(stream, groups, a, b, adds, c);
  } else
    throw Error("products of groups that begin where the device says are those of tensor cores, in bf16");
}
#define FORGE_GROUPED(T)                                                                                     \
  template void Gemm::grouped_rows(Stream&, const RowGroups&, Transpose, View<const T, 2>, View<const T, 3>, \
                                   View<T, 2>, double, bool);                                                \
  template void Gemm::grouped_sums(Stream&, const RowGroups&, View<const T, 2>, View<const T, 2>, bool,      \
                                   View<acc_t<T>, 3>);
FORGE_COMPUTE_TYPES(FORGE_GROUPED)
#undef FORGE_GROUPED

template <class TC>
void Gemm::code_product(Stream& stream, const CodeOperands& operands, CodeScaling scaling, bool adds, View<TC, 2> c) {
  impl_->codes({impl_->handle, impl_->workspace, impl_->workspace_bytes, impl_->multiprocessors}, stream, operands,
               scaling, adds, c);
}
template void Gemm::code_product(Stream&, const CodeOperands&, CodeScaling, bool, View<bf16, 2>);
template void Gemm::code_product(Stream&, const CodeOperands&, CodeScaling, bool, View<float, 2>);

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
