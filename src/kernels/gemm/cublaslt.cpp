#include "kernels/gemm/cublaslt.hpp"

#include "device/cuda_check.hpp"

namespace forge {

int multiprocessors_left(int spared) {
  int device = 0, count = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return std::max(1, count - spared);
}

void set_multiprocessors(cublasLtMatmulDesc_t operation, int count) {
  if (count > 0) set_attribute(operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(count));
}

cublasLtMatmulAlgo_t proposed_algorithm(cublasLtHandle_t handle, const CublasLtPlan& plan,
                                        const OperandAlignment& alignment, std::size_t workspace_bytes,
                                        const std::string& extents) {
  cublasLtMatmulPreference_t preference = nullptr;
  cublas_check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const OwnedCublasLt<cublasLtMatmulPreference_t> owner(preference);
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
  set_attribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.b);
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.a);
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.c);
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.c);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, plan.operation.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                     plan.c.get(), preference, 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
    throw Error("cuBLASLt has no algorithm for a product of " + extents + " in a workspace of " +
                std::to_string(workspace_bytes) + " bytes (machine.workspace_mib)");
  cublas_check(status, "cublasLtMatmulAlgoGetHeuristic");
  require(result.state == CUBLAS_STATUS_SUCCESS, "cuBLASLt proposes no algorithm that works");
  return result.algo;
}

bool serves(cublasLtHandle_t handle, const CublasLtPlan& plan, std::size_t workspace_bytes) {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle, plan.operation.get(), plan.b.get(), plan.a.get(), plan.c.get(), plan.c.get(),
                                 &plan.algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_bytes;
}

}  // namespace forge
