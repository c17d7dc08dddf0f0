// kernel_bench [--tiny] [--beside BLOCKS] [GROUP…]: seconds of forge's kernels in bf16 on random data, at the shapes of
// training steps of a 7B model, Qwen3-30B-A3B and Mixtral-8x7B; groups: products, experts, attention, rows, matrices
// (Muon's), and, if asked for, quickstart: Muon's on a processor, in fp32. Lines of tab-separated fields (print_row in
// bench.hpp), which peer_kernels.py reads to run PyTorch on the same sizes. --tiny: small sizes, for a processor.
// --beside: while a kernel of so many blocks moves bytes in another stream, as a collective does (beside.py compares).

#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <optional>

#include "bench.hpp"

namespace {

using namespace forge;
using namespace forge::bench;

int run(int argc, char** argv) {
  const std::map<std::string, std::function<void(const Bench&)>> groups = {
      {"products", bench_products}, {"experts", bench_experts},   {"attention", bench_attention},
      {"rows", bench_rows},         {"matrices", bench_matrices}, {"quickstart", bench_quickstart}};
  bool tiny = false;
  int blocks = 0;
  std::vector<std::string> chosen;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tiny") == 0) {
      tiny = true;
    } else if (std::strcmp(argv[i], "--beside") == 0 && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      blocks = std::atoi(argv[++i]);
    } else if (groups.contains(argv[i])) {
      chosen.emplace_back(argv[i]);
    } else {
      std::fprintf(stderr,
                   "kernel_bench: %s: legal are --tiny, --beside BLOCKS, products, experts, attention, rows, matrices, "
                   "quickstart\n",
                   argv[i]);
      return 2;
    }
  }
  if (chosen.empty()) chosen = {"products", "experts", "attention", "rows", "matrices"};
  const std::size_t workspace_bytes = std::size_t{64} << 20;
  const Buffer workspace(workspace_bytes);
  Gemm gemm(workspace.data(), workspace_bytes);
  Stream stream;
  const DeviceInfo device = device_info();
  std::printf("# %s, %s\n", device.name, device.features);
  std::optional<WireKernel> beside;
  if (blocks > 0) beside.emplace(blocks, tiny);
  for (const std::string& group : chosen) groups.at(group)({stream, gemm, tiny, beside ? &*beside : nullptr});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_bench: %s\n", error.what());
    return 1;
  }
}
