#include <memory>

#include "bench.hpp"
#include "kernels/attention/attention_cudnn.hpp"
#include "kernels/attention/attention_tiles.hpp"
#include "model/cudnn_attention.hpp"

namespace forge::bench {

namespace {

// What cuDNN's backward may have, where the least that it needs is less.
constexpr std::size_t cudnn_room = std::size_t{2560} << 20;

struct Heads {
  int64_t sequences, tokens, heads, kv_heads, head_dim, value_dim = 0;  // 0: as head_dim
};

// Causal attention of whole sequences, as a layer calls it: queries, keys and values are columns of one buffer. The
// rates count the pairs that the mask lets through: 2 (D + Dv) operations a pair forward, 6 D + 4 Dv backward.
void bench_heads(const Bench& b, const Heads& n) {
  const int64_t B = n.sequences, T = b.size(n.tokens, 32), H = n.heads, K = n.kv_heads, D = b.size(n.head_dim, 16);
  const int64_t Dv = n.value_dim > 0 ? n.value_dim : D, rows = B * T, width = (H + K) * D + K * Dv;
  Memory memory(b.stream);
  const auto qkv = memory.random<bf16, 2>({{rows, width}}), d_qkv = memory.zeros<bf16, 2>({{rows, width}});
  const auto o = memory.zeros<bf16, 3>({{rows, H, Dv}}), d_o = memory.random<bf16, 3>({{rows, H, Dv}});
  const auto lse = memory.zeros<float, 2>({{rows, H}}), delta = memory.zeros<float, 2>({{rows, H}});
  const auto sums = memory.zeros<float, 3>({{rows, H, D}});
  std::vector<std::int32_t> position(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < position.size(); ++i)
    position[i] = static_cast<std::int32_t>(static_cast<int64_t>(i) % T);
  const View<const std::int32_t, 1> positions = memory.values(position);
  const auto queries = [&](const View<bf16, 2>& x) { return View<bf16, 3>(x.data, {{rows, H, D}}, width); };
  const auto keys = [&](const View<bf16, 2>& x) { return View<bf16, 3>(x.data + H * D, {{rows, K, D}}, width); };
  const auto values = [&](const View<bf16, 2>& x) {
    return View<bf16, 3>(x.data + (H + K) * D, {{rows, K, Dv}}, width);
  };
  const AttentionMask mask{positions, positions, {}, {}, 0, true};
  const double pairs = static_cast<double>(B * H) * static_cast<double>(T) * static_cast<double>(T + 1) / 2;
  const std::string sizes = word("B", B) + " " + word("T", T) + " " + word("H", H) + " " + word("K", K) + " " +
                            word("D", D) + (Dv == D ? "" : " " + word("Dv", Dv));
  Buffer workspace;
  std::unique_ptr<CudnnAttention> cudnn;
  const Buffer tiles(static_cast<std::size_t>(b.stream.threads()) *
                     attention_thread_bytes<float>(D, Dv));  // of a CPU's threads
  if (cudnn_built_in()) {
    const CudnnBackward all{B, T, H, K, D, Dv};
    workspace = Buffer(std::max(cudnn_backward_bytes(all.part(1, 1)), std::min(cudnn_backward_bytes(all), cudnn_room)));
    cudnn = std::make_unique<CudnnAttention>(workspace.data(), workspace.bytes());
  }
  // cuda_cores, which the CPU build has too, is the kernel without a name.
  for (const AttentionKernel kernel :
       {AttentionKernel::cuda_cores, AttentionKernel::tensor_cores, AttentionKernel::cudnn}) {
    const bool first = kernel == AttentionKernel::cuda_cores;
    if ((!first && std::string(device_info().kind) == "cpu") || (kernel == AttentionKernel::cudnn && !cudnn)) continue;
    const std::string name = first ? "" : ", " + std::string(attention_kernel_words[static_cast<std::size_t>(kernel)]);
    AttentionShape shape{B, T, T, 1 / std::sqrt(static_cast<double>(D)), 0, 0, {}, 0, kernel};
    shape.cudnn = cudnn.get();
    shape.workspace = tiles.data();
    shape.workspace_bytes = tiles.bytes();
    const double forward = seconds_of(
        b, [&] { attention_forward<bf16>(b.stream, shape, mask, queries(qkv), keys(qkv), values(qkv), o, lse); });
    print_row("attention", "forward" + name, sizes, forward, 2 * static_cast<double>(D + Dv) * pairs, 0);
    const double backward = seconds_of(b, [&] {
      attention_delta<bf16>(b.stream, d_o, o, delta);
      attention_backward<bf16>(b.stream, shape, mask, d_o, queries(qkv), keys(qkv), values(qkv), lse, delta,
                               queries(d_qkv), keys(d_qkv), values(d_qkv), sums, o);
    });
    print_row("attention", "backward" + name, sizes, backward, static_cast<double>(6 * D + 4 * Dv) * pairs, 0);
  }
}

}  // namespace

void bench_attention(const Bench& b) {
  if (b.tiny) return bench_heads(b, {1, 32, 4, 2, 16});
  for (const Heads& n : {Heads{8, 1024, 32, 8, 128}, Heads{2, 4096, 32, 8, 128}, Heads{2, 4096, 32, 4, 128},
                         Heads{1, 16384, 32, 8, 128}, Heads{2, 4096, 32, 8, 64}, Heads{1, 4096, 32, 32, 192, 128}})
    bench_heads(b, n);
}

}  // namespace forge::bench
