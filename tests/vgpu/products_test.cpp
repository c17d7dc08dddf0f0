#include <cublasLt.h>

#include <cmath>
#include <limits>

#include "core/random.hpp"
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
  p.choice = other.choice;
  EXPECT_EQ(p.run(stream, a.data, b.data, d.data, workspace.data), CUBLAS_STATUS_INVALID_VALUE);
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
