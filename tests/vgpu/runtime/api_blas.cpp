#include <algorithm>
#include <cstring>
#include <string>

#include "api.hpp"
#include "blas_problem.hpp"
#include "cublasLt.h"
#include "settings.hpp"

// cuBLASLt: descriptors, the choice of an algorithm, and what a call must keep to.

struct cublasLtContext {
  std::uint64_t mark;
  std::uint64_t chosen_for = 0, checked_for = 0;  // the last problem that an algorithm of another one was checked for
};
struct cublasLtMatrixLayoutOpaque_t : vgpu::Matrix {};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

namespace vgpu {

namespace {

constexpr std::uint64_t handle_mark = 0x6375626c61734c74u;

cublasStatus_t refuse(cublasStatus_t status, const std::string& why) {
  refused(cudaSuccess, "cuBLASLt: " + why);
  return status;
}
cublasStatus_t invalid(const std::string& why) {
  return refuse(CUBLAS_STATUS_INVALID_VALUE, why);
}

// What an algorithm was chosen for (`kind`: but for extents), and what it promises; the words of a
// cublasLtMatmulAlgo_t.
struct Choice {
  std::uint64_t problem, kind, workspace, splits;
  std::uint32_t alignment[4];
};
static_assert(sizeof(Choice) <= sizeof(cublasLtMatmulAlgo_t));

std::uint64_t hash_of(const Problem& p, bool extents = true) {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](std::uint64_t x) { hash = (hash ^ x) * 1099511628211u; };
  for (const std::uint64_t x :
       {static_cast<std::uint64_t>(p.desc->compute), static_cast<std::uint64_t>(p.desc->scale),
        static_cast<std::uint64_t>(p.desc->transpose_a), static_cast<std::uint64_t>(p.desc->transpose_b),
        static_cast<std::uint64_t>(p.desc->a_factors.mode), static_cast<std::uint64_t>(p.desc->b_factors.mode),
        static_cast<std::uint64_t>(p.desc->fast_accumulation), static_cast<std::uint64_t>(p.desc->multiprocessors)})
    add(x);
  for (const Matrix* m : {&p.a, &p.b, &p.c, &p.d})
    for (const std::uint64_t x : {static_cast<std::uint64_t>(m->type), extents ? m->rows : 0, extents ? m->columns : 0,
                                  static_cast<std::uint64_t>(m->leading), static_cast<std::uint64_t>(m->count),
                                  static_cast<std::uint64_t>(m->stride)})
      add(x);
  return hash;
}

// Types: fp64; fp32; bf16 with sums in fp32 and a result in bf16 or fp32; numbers of 8 bits (fp8_unsupported).
bool types_known(const Problem& p) {
  if (is_fp8(p.a.type) || is_fp8(p.b.type)) return true;
  if (p.c.type != p.d.type || p.a.type != p.b.type) return false;
  if (p.desc->compute == CUBLAS_COMPUTE_64F)
    return p.desc->scale == CUDA_R_64F && p.a.type == CUDA_R_64F && p.d.type == CUDA_R_64F;
  if (p.desc->scale != CUDA_R_32F) return false;
  if (p.a.type == CUDA_R_32F) return p.d.type == CUDA_R_32F;
  return p.a.type == CUDA_R_16BF && (p.d.type == CUDA_R_32F || p.d.type == CUDA_R_16BF);
}

std::string shapes_broken(const Problem& p) {
  const bool ta = p.desc->transpose_a != CUBLAS_OP_N, tb = p.desc->transpose_b != CUBLAS_OP_N;
  const std::uint64_t m = ta ? p.a.columns : p.a.rows, k = ta ? p.a.rows : p.a.columns;
  const std::uint64_t n = tb ? p.b.rows : p.b.columns, k_b = tb ? p.b.columns : p.b.rows;
  const std::string shapes =
      "A " + text_of(p.a) + ", B " + text_of(p.b) + ", C " + text_of(p.c) + ", D " + text_of(p.d);
  if (k != k_b || p.d.rows != m || p.d.columns != n || p.c.rows != m || p.c.columns != n)
    return "the extents do not match: " + shapes;
  if (m == 0 || n == 0 || k == 0) return "an extent is 0: " + shapes;
  if (std::max({m, n, k}) > 0x7fffffffu) return "an extent is above 2147483647: " + shapes;
  for (const Matrix* x : {&p.a, &p.b, &p.c, &p.d})
    if (x->leading < static_cast<std::int64_t>(x->rows)) return "a leading dimension is below the rows: " + shapes;
  if (p.a.count < 1 || p.b.count != p.a.count || p.c.count != p.a.count || p.d.count != p.a.count)
    return "the matrices' batches have different lengths: " + shapes;
  if (p.d.count > 1 && (p.d.stride < 0 || p.d.bytes_to(1) < p.d.bytes_of_one()))
    return "the batch's results stand in each other's places: " + shapes;
  return "";
}

constexpr std::uint64_t least_split = 8;  // of the inner dimension
std::uint64_t inner_of(const Problem& p) {
  return p.desc->transpose_a != CUBLAS_OP_N ? p.a.rows : p.a.columns;
}

// Some problems, by their extents, get an algorithm that splits the inner dimension, where the preference allows it.
Choice choose(const Problem& p, const cublasLtMatmulPreferenceOpaque_t& preference) {
  Choice choice{};
  choice.problem = hash_of(p);
  choice.kind = hash_of(p, false);
  choice.splits = 1;
  std::copy_n(preference.alignment, 4, choice.alignment);
  const std::uint64_t sums = p.d.rows * p.d.columns * (p.d.type == CUDA_R_64F || is_fp8(p.a.type) ? 8 : 4);
  const std::uint64_t inner = inner_of(p);
  const std::uint64_t splits = 2 + choice.problem % 3;
  if (p.d.count == 1 && (preference.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) && inner >= least_split &&
      choice.problem % 2 == 0 && splits * sums <= preference.workspace)
    choice.splits = splits;
  choice.workspace = choice.splits > 1 ? splits * sums : std::min<std::uint64_t>(preference.workspace, 256);
  return choice;
}

cublasLtMatmulHeuristicResult_t result_of(const Choice& choice) {
  cublasLtMatmulHeuristicResult_t result{};
  std::memcpy(&result.algo, &choice, sizeof choice);
  result.workspaceSize = choice.workspace;
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  return result;
}

std::string operands_broken(Device& device, const Problem& p, const Choice& choice, const void* const (&data)[4]) {
  const Matrix* const matrices[] = {&p.a, &p.b, &p.c, &p.d};
  const char* const names[] = {"A", "B", "C", "D"};
  for (int i = 0; i < 4; ++i) {
    const std::string name = names[i];
    if (!on_device(device, data[i], matrices[i]->bytes()))
      return name + ", " + text_of(*matrices[i]) + ", is not inside live memory of device " +
             std::to_string(device.number());
    if (reinterpret_cast<std::uintptr_t>(data[i]) % choice.alignment[i] != 0)
      return name + " is not aligned to the " + std::to_string(choice.alignment[i]) +
             " bytes that its algorithm was chosen for";
    if (reinterpret_cast<std::uintptr_t>(data[i]) % size_of(matrices[i]->type) != 0)
      return name + " is not aligned to its elements";
  }
  const auto overlaps = [&](int i) {
    const auto x = reinterpret_cast<std::uintptr_t>(data[i]), d = reinterpret_cast<std::uintptr_t>(data[3]);
    return x < d + p.d.bytes() && d < x + matrices[i]->bytes();
  };
  if (overlaps(0) || overlaps(1)) {
    // Interleaved matrices, such as columns of one buffer, share a range of addresses and no element.
    for (int i = 0; i < 2; ++i)
      if (overlaps(i) && data[i] == data[3]) return std::string("D stands where ") + names[i] + " does";
  }
  if (overlaps(2) && (data[2] != data[3] || p.c.leading != p.d.leading)) return "C and D overlap, but are not the same";
  return "";
}

double scalar(cudaDataType_t type, const void* p) {
  return type == CUDA_R_64F ? *static_cast<const double*>(p) : *static_cast<const float*>(p);
}

template <class T>
cublasStatus_t set(T& to, const void* value, std::size_t bytes) {
  if (bytes != sizeof(T))
    return invalid("an attribute of " + std::to_string(sizeof(T)) + " bytes got " + std::to_string(bytes));
  std::memcpy(&to, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_multiprocessors(cublasLtMatmulDescOpaque_t& desc, const void* value, std::size_t bytes) {
  const cublasStatus_t status = set(desc.multiprocessors, value, bytes);
  if (status == CUBLAS_STATUS_SUCCESS &&
      (desc.multiprocessors < 1 || desc.multiprocessors >= static_cast<int>(Settings::multiprocessors)))
    return invalid("a product for " + std::to_string(desc.multiprocessors) + " multiprocessors, not fewer than all");
  return status;
}

template <class Handle>
cublasStatus_t destroy(Handle handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

}  // namespace vgpu

using vgpu::invalid;

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "an internal operation failed";
  }
}
std::size_t cublasLtGetVersion() {
  return 130100;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext{.mark = vgpu::handle_mark};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (!handle || handle->mark != vgpu::handle_mark) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->mark = 0;
  return vgpu::destroy(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  *desc = new cublasLtMatmulDescOpaque_t{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return vgpu::destroy(desc);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) return vgpu::set(desc->transpose_a, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) return vgpu::set(desc->transpose_b, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) return vgpu::set(desc->a_factors.data, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) return vgpu::set(desc->b_factors.data, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_FAST_ACCUM) return vgpu::set(desc->fast_accumulation, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET) return vgpu::set_multiprocessors(*desc, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_MODE) return vgpu::set(desc->a_factors.mode, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_B_SCALE_MODE) return vgpu::set(desc->b_factors.mode, value, bytes);
  return invalid("an attribute of products that is not emulated: " + std::to_string(attribute));
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  *layout = new cublasLtMatrixLayoutOpaque_t{{type, rows, columns, leading}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_COLS) return vgpu::set(layout->columns, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return vgpu::set(layout->count, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return vgpu::set(layout->stride, value, bytes);
  return invalid("an attribute of matrices that is not emulated: " + std::to_string(attribute));
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return vgpu::destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return vgpu::destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return vgpu::set(preference->workspace, value, bytes);
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return vgpu::set(preference->reductions, value, bytes);
  const int operand = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (operand < 0 || operand > 3) return invalid("a preference that is not emulated: " + std::to_string(attribute));
  return vgpu::set(preference->alignment[operand], value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (!handle || handle->mark != vgpu::handle_mark) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (wanted < 1) return invalid("no algorithm is wanted");
  const vgpu::Problem problem{desc, *a, *b, *c, *d};
  if (!vgpu::types_known(problem)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (const std::string broken = vgpu::shapes_broken(problem); !broken.empty()) return invalid(broken);
  if (const std::string lacking = vgpu::fp8_unsupported(problem); !lacking.empty())
    return vgpu::refuse(CUBLAS_STATUS_NOT_SUPPORTED, lacking);
  vgpu::count(vgpu::current_device(), "choices of algorithms");
  *results = vgpu::result_of(vgpu::choose(problem, *preference));
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

// Problems that differ in extents alone share algorithms; one that splits the inner dimension needs some of it.
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  if (!handle || handle->mark != vgpu::handle_mark) return CUBLAS_STATUS_NOT_INITIALIZED;
  const vgpu::Problem problem{desc, *a, *b, *c, *d};
  if (const std::string broken = vgpu::shapes_broken(problem); !broken.empty()) return vgpu::invalid(broken);
  vgpu::Choice choice;
  std::memcpy(&choice, algorithm, sizeof choice);
  if (choice.kind != vgpu::hash_of(problem, false) ||
      (choice.splits > 1 && vgpu::inner_of(problem) < vgpu::least_split))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  handle->chosen_for = choice.problem;
  handle->checked_for = vgpu::hash_of(problem);
  *result = vgpu::result_of(choice);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream_handle) {
  if (!handle || handle->mark != vgpu::handle_mark) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto [stream, error] = vgpu::find_stream(stream_handle, "cublasLtMatmul");
  if (!stream) return CUBLAS_STATUS_INVALID_VALUE;
  if (!algorithm)
    return invalid("cublasLtMatmul without an algorithm is not emulated: forge keeps the one it asked for");
  const vgpu::Problem problem{desc, *a_layout, *b_layout, *c_layout, *d_layout};
  vgpu::Choice choice;
  std::memcpy(&choice, algorithm, sizeof choice);
  const std::uint64_t asked = vgpu::hash_of(problem);
  if (choice.problem != asked && (handle->chosen_for != choice.problem || handle->checked_for != asked))
    return invalid("the algorithm was chosen for another problem than A " + vgpu::text_of(*a_layout) + ", B " +
                   vgpu::text_of(*b_layout) + ", D " + vgpu::text_of(*d_layout));
  if (const std::string broken = vgpu::operands_broken(stream->device, problem, choice, {a, b, c, d}); !broken.empty())
    return invalid(broken);
  if (const std::string broken = vgpu::factors_broken(stream->device, problem); !broken.empty()) return invalid(broken);
  if (const std::string lacking = vgpu::scale_unsupported(problem); !lacking.empty())
    return vgpu::refuse(CUBLAS_STATUS_NOT_SUPPORTED, lacking);
  if (choice.workspace > workspace_bytes)
    return invalid("a workspace of " + std::to_string(workspace_bytes) + " bytes for an algorithm that needs " +
                   std::to_string(choice.workspace));
  if (choice.workspace > 0 && (!vgpu::on_device(stream->device, workspace, workspace_bytes) ||
                               reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0))
    return invalid("the workspace is not device memory aligned to 256 bytes");
  vgpu::count(stream->device, "products");
  const vgpu::Product product{*a_layout,
                              *b_layout,
                              *c_layout,
                              *d_layout,
                              desc->transpose_a != CUBLAS_OP_N,
                              desc->transpose_b != CUBLAS_OP_N,
                              vgpu::scalar(desc->scale, alpha),
                              vgpu::scalar(desc->scale, beta),
                              a,
                              b,
                              c,
                              d,
                              workspace,
                              choice.workspace,
                              static_cast<int>(choice.splits),
                              desc->a_factors,
                              desc->b_factors};
  return vgpu::give(*stream, vgpu::product_work(product)) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                         : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
