#include "kernels/experts/grouped_cutlass.hpp"

#include <cutlass/cutlass.h>

#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include <string>

#include "core/error.hpp"
#include "device/device_memory.hpp"
#include "device/launch.hpp"
#include "kernels/gemm/cublaslt.hpp"

namespace forge {

namespace {

using cutlass::layout::ColumnMajor, cutlass::layout::RowMajor;
using Extents = cute::Shape<int, int, int>;  // M, N, K of a group
using Number = cutlass::bfloat16_t;

// Whether rows begin at multiples of 16 bytes and are whole pieces of them, of so many elements.
bool in_pieces(const void* data, std::int64_t pitch, std::int64_t columns, std::int64_t piece) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && pitch % piece == 0 && columns % piece == 0;
}

// C(M, N) = or += A(M, K) B(K, N) of each group, C row-major: tiles of 128 x 256 by two warpgroups that share each, 64
// of the depth at a time, which a third one copies; blocks that live on take tile after tile, group by group.
template <class OrderOfA, class OrderOfB, class Result>
struct Grouped {
  using Tile = cute::Shape<cute::_128, cute::_256, cute::_64>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  static constexpr int piece = 16 / sizeof(Result);
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Result, RowMajor*, piece, Result, RowMajor*, piece,
      cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative,
      cutlass::epilogue::fusion::LinearCombination<Result, float>>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Number, OrderOfA*, 8, Number, OrderOfB*, 8, float, Tile,
      Cluster, cutlass::gemm::collective::StageCountAutoCarveout<int{sizeof(typename Epilogue::SharedStorage)}>,
      cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative>::CollectiveOp;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<
      cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<Extents>, Mainloop, Epilogue>>;
  static_assert(sizeof(typename Gemm::GemmKernel::InternalStrideA) == sizeof(std::int64_t) &&
                sizeof(typename Gemm::GemmKernel::InternalStrideB) == sizeof(std::int64_t) &&
                sizeof(typename Gemm::GemmKernel::InternalStrideD) == sizeof(std::int64_t));
};

// Where an operand of a group begins, data + begin · by_row + g · by_group elements, and its leading dimension.
struct Operand {
  char* data;
  std::int64_t by_row, by_group, leading;
  int element_bytes;
};

// What CUTLASS reads of each group, in the workspace.
struct Descriptions {
  std::uintptr_t* pointers[3];  // of A, B and C
  std::int64_t* leading[3];     // the one number that their strides have
  Extents* extents;

  static std::size_t bytes(std::int64_t groups) {
    return (static_cast<std::size_t>(groups) * (6 * sizeof(std::int64_t) + sizeof(Extents)) + 255) / 256 * 256;
  }
  Descriptions(void* memory, std::int64_t groups) {
    auto* at = static_cast<std::int64_t*>(memory);
    for (int i = 0; i < 3; ++i, at += groups) pointers[i] = reinterpret_cast<std::uintptr_t*>(at);
    for (int i = 0; i < 3; ++i, at += groups) leading[i] = at;
    extents = reinterpret_cast<Extents*>(at);
  }
};

struct Operands {
  Operand of[3];
};

constexpr int block_threads = 128;

// Sums to clear of groups without rows, which CUTLASS leaves alone: C_g(size) = 0, by some blocks for each.
struct Cleared {
  float* sums = nullptr;  // nullptr: none
  std::int64_t pitch = 0, size = 0;
};
constexpr int clearing_blocks = 8;

__device__ void clear_if_empty(const RowGroups& groups, const Cleared& c, unsigned block) {
  const std::int64_t g = block / clearing_blocks;
  if (groups.begin_of(g + 1) > groups.begin_of(g)) return;
  auto* const to = reinterpret_cast<int4*>(c.sums + g * c.pitch);
  for (std::int64_t i = block % clearing_blocks * block_threads + threadIdx.x; i < c.size / 4;
       i += clearing_blocks * block_threads)
    to[i] = int4{};
}

// m, n, k: of every group; −1 is the group's number of rows. A group without a depth has no rows either, so that
// nothing is computed of it. The blocks behind the first `describing` clear sums.
__global__ void __launch_bounds__(block_threads)
    describe_groups(RowGroups groups, Operands operands, int m, int n, int k, Cleared cleared, unsigned describing,
                    Descriptions to) {
  if (blockIdx.x >= describing) return clear_if_empty(groups, cleared, blockIdx.x - describing);
  const std::int64_t g = std::int64_t{blockIdx.x} * block_threads + threadIdx.x;
  if (g >= groups.count) return;
  const std::int64_t begin = groups.begin_of(g);
  const int rows = static_cast<int>(groups.begin_of(g + 1) - begin), depth = k < 0 ? rows : k;
  to.extents[g] = cute::make_shape(depth == 0 ? 0 : m < 0 ? rows : m, n, depth);
  for (int i = 0; i < 3; ++i) {
    const Operand& x = operands.of[i];
    to.pointers[i][g] =
        reinterpret_cast<std::uintptr_t>(x.data + (begin * x.by_row + g * x.by_group) * x.element_bytes);
    to.leading[i][g] = x.leading;
  }
}

void check(cutlass::Status status) {
  if (status != cutlass::Status::kSuccess)
    throw LibraryFailed(std::string("CUTLASS: ") + cutlass::cutlassGetStatusString(status));
}

// C = alpha A B + beta C, of groups whose descriptions are written by a launch before.
template <class Kernel, class Result>
void run(Stream& stream, const CutlassWorkspace& workspace, const RowGroups& groups, const Operands& operands, int m,
         int n, int k, float alpha, float beta, const Cleared& cleared = {}) {
  using Gemm = typename Kernel::Gemm;
  using Arranged = typename Gemm::GemmKernel;
  const std::size_t described = Descriptions::bytes(groups.count);
  const Descriptions d(workspace.data, groups.count);
  const auto pointers = [&](int i) { return reinterpret_cast<const Number**>(d.pointers[i]); };
  auto* const results = reinterpret_cast<Result**>(d.pointers[2]);
  auto* const strides_of_c = reinterpret_cast<typename Arranged::InternalStrideD*>(d.leading[2]);
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGrouped,
      {static_cast<int>(groups.count), d.extents, nullptr},
      {pointers(0), reinterpret_cast<typename Arranged::InternalStrideA*>(d.leading[0]), pointers(1),
       reinterpret_cast<typename Arranged::InternalStrideB*>(d.leading[1])},
      {{}, const_cast<const Result**>(results), strides_of_c, results, strides_of_c},
      {0, workspace.multiprocessors > 0 ? workspace.multiprocessors : multiprocessors_left(0)}};
  arguments.epilogue.thread.alpha = alpha;
  arguments.epilogue.thread.beta = beta;
  if (const std::size_t needed = described + Gemm::get_workspace_size(arguments); needed > workspace.bytes)
    throw Error("a grouped product by CUTLASS needs a workspace of " + std::to_string(needed) +
                " bytes (machine.workspace_mib)");
  const std::int64_t describing = (groups.count + block_threads - 1) / block_threads;
  launch(stream, "descriptions of groups", describe_groups,
         {describing + (cleared.sums ? groups.count * clearing_blocks : 0), block_threads}, groups, operands, m, n, k,
         cleared, static_cast<unsigned>(describing), d);
  Gemm gemm;
  const auto native = static_cast<cudaStream_t>(stream.native());
  check(gemm.initialize(arguments, static_cast<char*>(workspace.data) + described, native));
  check(gemm.run(native));
}

template <class T>
Operand operand(const T* data, std::int64_t by_row, std::int64_t by_group, std::int64_t leading) {
  return {reinterpret_cast<char*>(const_cast<T*>(data)), by_row, by_group, leading, sizeof(T)};
}

}  // namespace

bool grouped_rows_by_cutlass(Stream& stream, const CutlassWorkspace& workspace, const RowGroups& groups,
                             bool weights_by_rows, View<const bf16, 2> a, View<const bf16, 3> b, View<bf16, 2> c,
                             double alpha, bool adds) {
  if (!in_pieces(a.data, a.pitch, a.columns(), 8) || !in_pieces(b.data, b.pitch, b.extent(2), 8) ||
      !in_pieces(c.data, c.pitch, c.columns(), 8) || c.rows() * c.columns() * a.columns() * groups.count == 0)
    return false;
  const Operands operands{{operand(a.data, a.pitch, 0, a.pitch), operand(b.data, 0, b.pitch, b.extent(2)),
                           operand(c.data, c.pitch, 0, c.pitch)}};
  const int n = static_cast<int>(c.columns()), k = static_cast<int>(a.columns());
  const float factor = static_cast<float>(alpha), beta = adds ? 1.0f : 0.0f;
  if (weights_by_rows)
    run<Grouped<RowMajor, ColumnMajor, Number>, Number>(stream, workspace, groups, operands, -1, n, k, factor, beta);
  else
    run<Grouped<RowMajor, RowMajor, Number>, Number>(stream, workspace, groups, operands, -1, n, k, factor, beta);
  return true;
}

bool grouped_sums_by_cutlass(Stream& stream, const CutlassWorkspace& workspace, const RowGroups& groups,
                             View<const bf16, 2> a, View<const bf16, 2> b, bool adds, View<float, 3> c) {
  if (!in_pieces(a.data, a.pitch, a.columns(), 8) || !in_pieces(b.data, b.pitch, b.columns(), 8) ||
      !in_pieces(c.data, c.pitch, c.extent(2), 4) || a.rows() * a.columns() * b.columns() * groups.count == 0)
    return false;
  const Operands operands{{operand(a.data, a.pitch, 0, a.pitch), operand(b.data, b.pitch, 0, b.pitch),
                           operand(c.data, 0, c.pitch, c.extent(2))}};
  const Cleared cleared{adds ? nullptr : c.data, c.pitch, c.extent(1) * c.extent(2)};
  run<Grouped<ColumnMajor, RowMajor, float>, float>(stream, workspace, groups, operands, static_cast<int>(a.columns()),
                                                    static_cast<int>(b.columns()), -1, 1, adds ? 1.0f : 0.0f, cleared);
  return true;
}

bool cutlass_built_in() {
  return true;
}
bool cutlass_has_kernels_here() {
  return std::string(device_info().features) == "sm_90";
}

}  // namespace forge
