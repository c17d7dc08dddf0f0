#include "model/cudnn_attention.hpp"

#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

bool cudnn_computes(const Deck& deck) {
  return deck.train.computes_in_bf16() && deck.model.attention_soft_cap == 0 && deck.data.one_document() &&
         deck.mesh.cp == 1 && deck.train.sequence_tokens > 1 && deck.model.dropout == 0 && deck.optimizer.qk_clip == 0;
}

std::size_t cudnn_backward_bytes(const CudnnBackward& n) {
  constexpr std::size_t bf16_bytes = 2, fp32_bytes = 4, others = std::size_t{1} << 20;
  const std::size_t T = to_size(n.rows), queries = (T + 63) / 64 * 64, keys = (T + 127) / 128 * 128;
  const std::size_t of_groups = n.heads > n.kv_heads ? T * to_size(n.size + n.value_size) * bf16_bytes : 0;
  return to_size(n.sequences * n.heads) * (queries * keys * bf16_bytes + of_groups + 2 * T * fp32_bytes) + others;
}

namespace {

// The largest divisor of n that fits, or 1.
template <class Fits>
std::int64_t largest_divisor(std::int64_t n, const Fits& fits) {
  for (std::int64_t d = n; d > 1; --d)
    if (n % d == 0 && fits(d)) return d;
  return 1;
}

CudnnBackward backward_of(const BufferContext& buffers) {
  const ModelSpec& m = buffers.spec;
  return {buffers.microbatch.sequences, buffers.microbatch.sequence_tokens, m.H(), m.K(), m.D(), m.value_dim()};
}

std::size_t mib_of(const CudnnBackward& n) {
  const std::size_t mib = std::size_t{1} << 20;
  return (cudnn_backward_bytes(n) + mib - 1) / mib;
}

bool holds_least_part(const Deck& deck, const CudnnBackward& all) {
  return to_size(deck.machine.workspace_mib) >= mib_of(all.part(1, 1));
}

}  // namespace

CudnnBackward cudnn_part(const CudnnBackward& n, std::size_t workspace_bytes) {
  const auto fits = [&](std::int64_t sequences, std::int64_t kv_heads) {
    return cudnn_backward_bytes(n.part(sequences, kv_heads)) <= workspace_bytes;
  };
  if (fits(1, n.kv_heads))
    return n.part(largest_divisor(n.sequences, [&](std::int64_t d) { return fits(d, n.kv_heads); }), n.kv_heads);
  return n.part(1, largest_divisor(n.kv_heads, [&](std::int64_t d) { return fits(1, d); }));
}

bool takes_cudnn(const Deck& deck, const BufferContext& buffers, bool preferred) {
  if (!cudnn_computes(deck)) return false;
  if (buffers.kernels.attention != AttentionKernel::automatic)
    return buffers.kernels.attention == AttentionKernel::cudnn;
  return preferred && holds_least_part(deck, backward_of(buffers));
}

void check_cudnn_workspace(const Deck& deck, const BufferContext& buffers) {
  if (buffers.kernels.attention != AttentionKernel::cudnn || !cudnn_computes(deck)) return;
  const CudnnBackward all = backward_of(buffers);
  if (holds_least_part(deck, all)) return;
  throw BadInput(asked_text(AttentionKernel::cudnn) +
                 " with machine.workspace_mib = " + std::to_string(deck.machine.workspace_mib) +
                 ": backward keeps the gradients of the scores of at least one head of keys; legal: workspace_mib " +
                 std::to_string(mib_of(all.part(1, 1))) + " or more (" + std::to_string(mib_of(all)) +
                 " for all heads and sequences of a microbatch at once), or FORGE_ATTENTION = tensor_cores");
}

}  // namespace forge
