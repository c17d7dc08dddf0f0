#include <cublasLt.h>

#include <cmath>
#include <limits>

#include "core/normal.hpp"
#include "core/types.hpp"
#include "support.hpp"

// Products of cuBLASLt: their values are tested with forge's own (kernels_gemm); here, what a call must keep to.

namespace forge::test {
namespace {

#define EXPECT_BLAS(call) EXPECT_EQ(call, CUBLAS_STATUS_SUCCESS) << #call

// D = A B of column-major fp32 matrices, with an algorithm that was asked for.
struct Product {
  std::uint64_t m, n, k;
  std::size_t workspace_bytes = 1 << 20;
  std::uint32_t alignment = 16;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};

  Product(std::uint64_t m_, std::uint64_t n_, std::uint64_t k_, std::size_t workspace = 1 << 20,
          std::uint32_t align = 16)
      : m(m_), n(n_), k(k_), workspace_bytes(workspace), alignment(align) {
    EXPECT_BLAS(cublasLtCreate(&handle));
    EXPECT_BLAS(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    EXPECT_BLAS(cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, m, k, static_cast<std::int64_t>(m)));
    EXPECT_BLAS(cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, k, n, static_cast<std::int64_t>(k)));
    EXPECT_BLAS(cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, m, n, static_cast<std::int64_t>(m)));
    EXPECT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  }
  ~Product() {
    for (const auto layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  cublasStatus_t choose() {
    cublasLtMatmulPreference_t preference = nullptr;
    EXPECT_BLAS(cublasLtMatmulPreferenceCreate(&preference));
    const std::uint64_t bytes = workspace_bytes;
    EXPECT_BLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                     sizeof bytes));
    for (int i = 0; i < 4; ++i)
      EXPECT_BLAS(cublasLtMatmulPreferenceSetAttribute(
          preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i),
          &alignment, sizeof alignment));
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &choice, &found);
    EXPECT_BLAS(cublasLtMatmulPreferenceDestroy(preference));
    return status;
  }
  cublasStatus_t run(cudaStream_t stream, const float* x, const float* y, float* z, void* workspace, float beta = 0) {
    const float one = 1;
    return cublasLtMatmul(handle, desc, &one, x, a, y, b, &beta, z, d, z, d, &choice.algo, workspace, workspace_bytes,
                          stream);
  }
};

class Products : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  static std::vector<float> draw(std::size_t n, std::uint64_t key) {
    std::vector<float> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(static_cast<float>(normal(key, i)));
    return values;
  }
  TestStream stream;
};

// With and without parts of the sum that meet in the workspace.
TEST_F(Products, AreSumsOfProducts) {
  bool split = false, whole = false;
  for (std::uint64_t k = 30; k < 40; ++k) {
    Product p(7, 5, k);
    const auto a = draw(7 * k, 1), b = draw(5 * k, 2);
    const DeviceMemory<float> da(stream, a), db(stream, b), d(35);
    const DeviceMemory<char> workspace(p.workspace_bytes);
    EXPECT_BLAS(p.run(stream, da.data, db.data, d.data, workspace.data));
    const auto got = d.read(stream);
    for (std::size_t i = 0; i < 7; ++i)
      for (std::size_t j = 0; j < 5; ++j) {
        double sum = 0, magnitude = 0;
        for (std::size_t l = 0; l < k; ++l) {
          const double term = static_cast<double>(a[i + l * 7]) * static_cast<double>(b[l + j * k]);
          sum += term;
          magnitude += std::abs(term);
        }
        EXPECT_LE(std::abs(static_cast<double>(got[i + j * 7]) - sum), static_cast<double>(k) * 0x1p-23 * magnitude);
      }
    (p.choice.workspaceSize > 256 ? split : whole) = true;
  }
  EXPECT_TRUE(split && whole);
}

TEST_F(Products, OperandsAreLiveAlignedDeviceMemory) {
  Product p(8, 8, 8);
  const DeviceMemory<float> a(stream, std::vector<float>(64, 1)), b(stream, std::vector<float>(64, 1)), d(65);
  const DeviceMemory<char> workspace(p.workspace_bytes + 256);
  std::vector<float> host(64);
  EXPECT_EQ(p.run(stream, host.data(), b.data, d.data, workspace.data), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(p.run(stream, a.data + 4, b.data, d.data, workspace.data), CUBLAS_STATUS_INVALID_VALUE) << "too short";
  EXPECT_EQ(p.run(stream, a.data, b.data, d.data + 1, workspace.data), CUBLAS_STATUS_INVALID_VALUE) << "4 of 16 bytes";
  EXPECT_EQ(p.run(stream, a.data, b.data, a.data, workspace.data), CUBLAS_STATUS_INVALID_VALUE) << "D on A";
  EXPECT_EQ(p.run(stream, a.data, b.data, d.data, workspace.data + 16), CUBLAS_STATUS_INVALID_VALUE) << "workspace";
  EXPECT_EQ(p.run(stream, a.data, b.data, d.data, host.data()), CUBLAS_STATUS_INVALID_VALUE) << "workspace";
  EXPECT_BLAS(p.run(stream, a.data, b.data, d.data, workspace.data));
  stream.wait();
}

TEST_F(Products, AnAlgorithmIsOneProblems) {
  Product p(8, 8, 8), other(8, 8, 9);
  const DeviceMemory<float> a(stream, std::vector<float>(80, 1)), b(stream, std::vector<float>(80, 1)), d(64);
  const DeviceMemory<char> workspace(p.workspace_bytes);
  const auto own = p.choice;
  p.choice = other.choice;
  EXPECT_EQ(p.run(stream, a.data, b.data, d.data, workspace.data), CUBLAS_STATUS_INVALID_VALUE);
  // But for one of as far apart columns that it was checked for, right before.
  Product narrow(8, 5, 8);
  narrow.choice = own;
  EXPECT_EQ(narrow.run(stream, a.data, b.data, d.data, workspace.data), CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatmulHeuristicResult_t checked{};
  EXPECT_BLAS(
      cublasLtMatmulAlgoCheck(narrow.handle, narrow.desc, narrow.a, narrow.b, narrow.d, narrow.d, &own.algo, &checked));
  EXPECT_BLAS(narrow.run(stream, a.data, b.data, d.data, workspace.data));
  EXPECT_EQ(cublasLtMatmulAlgoCheck(narrow.handle, narrow.desc, narrow.a, narrow.b, narrow.d, narrow.d,
                                    &other.choice.algo, &checked),
            CUBLAS_STATUS_NOT_SUPPORTED);
  stream.wait();
  p.workspace_bytes = 0;
  EXPECT_EQ(p.choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(p.choice.workspaceSize, 0u) << "what fits";
}

TEST_F(Products, ShapesMustMatch) {
  Product p(8, 8, 8);
  cublasLtMatrixLayoutDestroy(p.b);
  EXPECT_BLAS(cublasLtMatrixLayoutCreate(&p.b, CUDA_R_32F, 9, 8, 9));
  EXPECT_EQ(p.choose(), CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatrixLayoutDestroy(p.b);
  EXPECT_BLAS(cublasLtMatrixLayoutCreate(&p.b, CUDA_R_32F, 8, 8, 7));
  EXPECT_EQ(p.choose(), CUBLAS_STATUS_INVALID_VALUE) << "leading dimension";
  cublasLtMatrixLayoutDestroy(p.b);
  EXPECT_BLAS(cublasLtMatrixLayoutCreate(&p.b, CUDA_R_64F, 8, 8, 8));
  EXPECT_EQ(p.choose(), CUBLAS_STATUS_NOT_SUPPORTED) << "mixed types";
}

// D(m,n) = Aᵀ B of 8-bit numbers, A(k,m) and B(k,n), with their scales.
struct CodesProduct {
  std::uint64_t m = 16, n = 16, k = 256;
  std::int64_t leading = 256, d_leading = 16;
  cudaDataType_t a = CUDA_R_8F_E4M3, b = CUDA_R_8F_E4M3, d = CUDA_R_32F;
  cublasOperation_t ta = CUBLAS_OP_T, tb = CUBLAS_OP_N;
  std::int32_t a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;

  // The status of asking for an algorithm and, where there is one, of the product.
  cublasStatus_t run(cudaStream_t stream, const void* x, const float* of_x, const void* y, const float* of_y, void* z) {
    Product p(16, 16, 16);
    cublasLtMatmulDescDestroy(p.desc);
    for (const auto layout : {p.a, p.b, p.d}) cublasLtMatrixLayoutDestroy(layout);
    EXPECT_BLAS(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      EXPECT_BLAS(cublasLtMatmulDescSetAttribute(p.desc, attribute, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, ta), set(CUBLASLT_MATMUL_DESC_TRANSB, tb);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, a_mode), set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, b_mode);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of_x), set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of_y);
    EXPECT_BLAS(cublasLtMatrixLayoutCreate(&p.a, a, ta == CUBLAS_OP_T ? k : m, ta == CUBLAS_OP_T ? m : k, leading));
    EXPECT_BLAS(cublasLtMatrixLayoutCreate(&p.b, b, tb == CUBLAS_OP_T ? n : k, tb == CUBLAS_OP_T ? k : n, leading));
    EXPECT_BLAS(cublasLtMatrixLayoutCreate(&p.d, d, m, n, d_leading));
    if (const cublasStatus_t status = p.choose(); status != CUBLAS_STATUS_SUCCESS) return status;
    const DeviceMemory<char> workspace(p.workspace_bytes);
    const float one = 1, zero = 0;
    const cublasStatus_t status = cublasLtMatmul(p.handle, p.desc, &one, x, p.a, y, p.b, &zero, z, p.d, z, p.d,
                                                 &p.choice.algo, workspace.data, p.workspace_bytes, stream);
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    return status;
  }
};

// By the documentation of CUDA 13: 0x38 is 1 in E4M3, 0x3c in E5M2. Of A's scales each of its own size is read where it
// belongs.
TEST_F(Products, OfCodesTakeScalesInEachMode) {
  const DeviceMemory<std::uint8_t> a(stream, std::vector<std::uint8_t>(256 * 256, 0x38)),
      b(stream, std::vector<std::uint8_t>(256 * 256, 0x3c));
  std::vector<float> numbers;
  for (int i = 0; i < 4096; ++i) numbers.push_back(static_cast<float>(i));
  const DeviceMemory<float> scales(stream, numbers), halves(stream, std::vector<float>(4096, 0.5f)), d(256 * 16);
  CodesProduct p{.m = 256, .d_leading = 256, .b = CUDA_R_8F_E5M2};
  const auto result = [&](std::int32_t a_mode, std::int32_t b_mode) {
    p.a_mode = a_mode, p.b_mode = b_mode;
    EXPECT_BLAS(p.run(stream, a.data, scales.data + 16, b.data, halves.data, d.data));
    return d.read(stream);
  };
  const auto scalar = result(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
  const auto outer = result(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
  const auto slots = result(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
  const auto blocks = result(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
  for (std::size_t i = 0; i < 256; ++i) {
    const auto line = static_cast<float>(i);
    EXPECT_EQ(scalar[i], 128 * 16);
    EXPECT_EQ(outer[i], 128 * (16 + line));
    EXPECT_EQ(slots[i], 64 * ((16 + line) + (16 + 256 + line))) << "the lines of a slot stand together";
    const float block = i < 128 ? 16 : 20;
    EXPECT_EQ(blocks[i], 64 * (block + block + 1)) << "the slots of 128 lines, four of them";
  }
}

TEST_F(Products, OfCodesAreRefusedAsTheLibraryRefusesThem) {
  const DeviceMemory<std::uint8_t> a(stream, std::vector<std::uint8_t>(65536, 0x38));
  const DeviceMemory<float> ones(stream, std::vector<float>(64, 1)), d(4096);
  const auto run = [&](const CodesProduct& p, const float* of_x, const float* of_y) {
    return CodesProduct(p).run(stream, a.data, of_x, a.data, of_y, d.data);
  };
  const auto status = [&](const CodesProduct& p) { return run(p, ones.data, ones.data); };
  EXPECT_BLAS(status({}));
  constexpr auto lacking = CUBLAS_STATUS_NOT_SUPPORTED, wrong = CUBLAS_STATUS_INVALID_VALUE;
  EXPECT_EQ(status({.m = 256, .n = 256, .d_leading = 256, .ta = CUBLAS_OP_N}), lacking) << "NN";
  EXPECT_EQ(status({.n = 256, .tb = CUBLAS_OP_T}), lacking) << "TT";
  EXPECT_EQ(status({.k = 120}), lacking);
  EXPECT_EQ(status({.m = 18, .d_leading = 20}), lacking);
  EXPECT_EQ(status({.leading = 264}), lacking);
  EXPECT_EQ(status({.d_leading = 18}), lacking);
  EXPECT_EQ(status({.a = CUDA_R_8F_E5M2, .b = CUDA_R_8F_E5M2}), lacking);
  EXPECT_EQ(status({.d = CUDA_R_8F_E4M3}), lacking);
  EXPECT_EQ(status({.a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F}), lacking) << "beside one scale";
  constexpr std::int32_t blocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
                         slots = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  EXPECT_EQ(status({.a_mode = blocks, .b_mode = blocks}), lacking);
  EXPECT_EQ(status({.n = 18, .a_mode = blocks, .b_mode = slots}), lacking);
  EXPECT_EQ(run({}, nullptr, ones.data), wrong);
  EXPECT_EQ(run({}, ones.data, nullptr), wrong);
  EXPECT_EQ(run({.a_mode = blocks, .b_mode = slots}, ones.data + 1, ones.data), wrong) << "alignment";
  EXPECT_EQ(run({}, ones.data + 1, ones.data), lacking) << "alignment of an operand's one scale";
  EXPECT_EQ(run({}, ones.data, ones.data + 2), lacking);
  EXPECT_EQ(run({.m = 64, .d_leading = 64, .a_mode = slots, .b_mode = slots}, ones.data, ones.data), wrong)
      << "64 of 128 scales";
  EXPECT_EQ(run({.a = CUDA_R_16BF, .b = CUDA_R_16BF}, ones.data, nullptr), wrong) << "scales of numbers of 16 bits";
}

// Two streams that take turns by events may share a workspace; two that don't may not.
TEST_F(Products, AWorkspaceIsOneStreamsAtATime) {
  const TestStream second;
  const auto share = [&](bool ordered) {
    Product p(32, 32, 32);
    const DeviceMemory<float> a(stream, draw(1024, 1)), b(stream, draw(1024, 2)), c(1024), d(1024);
    const DeviceMemory<char> workspace(p.workspace_bytes);
    const TestEvent event;
    for (int round = 0; round < 50; ++round) {
      EXPECT_BLAS(p.run(stream, a.data, b.data, c.data, workspace.data));
      EXPECT_CUDA(cudaEventRecord(event, stream));
      if (ordered) wait_for(event, second);
      EXPECT_BLAS(p.run(second, a.data, b.data, d.data, workspace.data));
      EXPECT_CUDA(cudaEventRecord(event, second));
      if (ordered) wait_for(event, stream);
    }
    stream.wait();
    second.wait();
    EXPECT_EQ(c.read(stream), d.read(stream));
  };
  share(true);
  EXPECT_REPORT(share(false), "another work has written into its workspace");
}

}  // namespace
}  // namespace forge::test
