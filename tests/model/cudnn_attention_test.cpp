#include "model/cudnn_attention.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace forge {
namespace {

Deck cudnn_deck() {
  Deck deck;
  deck.train.precision = PrecisionName::bf16;
  deck.train.sequence_tokens = 4096;
  return deck;
}

template <class Change>
bool computes(Change&& change) {
  Deck deck = cudnn_deck();
  change(deck);
  return cudnn_computes(deck);
}

TEST(CudnnAttention, ComputesWholeSequencesOfOneDocument) {
  EXPECT_TRUE(computes([](Deck&) {}));
  EXPECT_TRUE(computes([](Deck& d) { d.model.sliding_window = 128; }));
  EXPECT_TRUE(computes([](Deck& d) { d.data.phases.resize(2); }));
  EXPECT_TRUE(computes([](Deck& d) { d.train.precision = PrecisionName::fp8; }));
  EXPECT_FALSE(computes([](Deck& d) { d.train.precision = PrecisionName::fp32; }));
  EXPECT_FALSE(computes([](Deck& d) { d.model.attention_soft_cap = 50; }));
  EXPECT_FALSE(computes([](Deck& d) { d.data.document_end_token = 0; }));
  EXPECT_FALSE(computes([](Deck& d) { d.data.document_ends = DocumentEnds::index; }));
  EXPECT_FALSE(computes([](Deck& d) { d.data.phases.resize(2), d.data.phases[1].sequence_tokens = 1024; }));
  EXPECT_FALSE(computes([](Deck& d) { d.mesh.cp = 2; }));
  EXPECT_FALSE(computes([](Deck& d) { d.train.sequence_tokens = 1; }));
  EXPECT_FALSE(computes([](Deck& d) { d.model.dropout = 0.1; }));
  EXPECT_FALSE(computes([](Deck& d) { d.optimizer.qk_clip = 100; }));
}

// The largest that fits, of all ways to divide sequences, and heads of one.
TEST(CudnnAttention, TakesTheLargestPartThatFits) {
  const CudnnBackward all{6, 512, 24, 12, 64, 64};
  const auto ways = {std::pair(6, 12), std::pair(3, 12), std::pair(2, 12), std::pair(1, 12), std::pair(1, 6),
                     std::pair(1, 4),  std::pair(1, 3),  std::pair(1, 2),  std::pair(1, 1)};
  for (const auto& [sequences, heads] : ways) {
    const std::size_t bytes = cudnn_backward_bytes(all.part(sequences, heads));
    const CudnnBackward part = cudnn_part(all, bytes);
    EXPECT_EQ(part.sequences, sequences);
    EXPECT_EQ(part.kv_heads, heads);
    EXPECT_EQ(part.heads, 2 * heads);
    EXPECT_EQ(part.rows, 512);
    EXPECT_LT(cudnn_backward_bytes(cudnn_part(all, bytes - 1)), bytes + (heads == 1)) << "one byte less: a smaller one";
  }
  EXPECT_EQ(cudnn_part(all, 0).kv_heads, 1);
}

// Gradients of the scores of 32 heads, 4,096 by 4,096 in bf16, are 1 GiB.
TEST(CudnnAttention, KeepsTheScores) {
  const std::size_t gib = std::size_t{1} << 30, bytes = cudnn_backward_bytes({1, 4096, 32, 32, 128, 128});
  EXPECT_GT(bytes, gib);
  EXPECT_LT(bytes, gib + gib / 256);
  EXPECT_GT(cudnn_backward_bytes({1, 4097, 32, 32, 128, 128}), bytes);
}

BufferContext buffers_with(AttentionKernel asked) {
  BufferContext buffers;
  ModelDeck& m = buffers.spec.options;
  m.heads = 32, m.kv_heads = 8, m.head_dim = 128;
  buffers.microbatch = {2, 4096, 1};
  buffers.kernels.attention = asked;
  return buffers;
}
const std::size_t least_mib = (cudnn_backward_bytes({1, 4096, 4, 1, 128, 128}) >> 20) + 1;  // MiB

// Where the GPU has no fast kernels of forge's, and the workspace holds a part; or where it is asked for.
TEST(CudnnAttention, IsTakenWhereItIsPreferredOrAskedFor) {
  const auto takes = [](AttentionKernel asked, bool preferred, const Deck& deck) {
    return takes_cudnn(deck, buffers_with(asked), preferred);
  };
  Deck deck = cudnn_deck();
  deck.machine.workspace_mib = static_cast<std::int64_t>(least_mib);
  for (const bool preferred : {false, true}) {
    EXPECT_EQ(takes(AttentionKernel::automatic, preferred, deck), preferred);
    EXPECT_TRUE(takes(AttentionKernel::cudnn, preferred, deck));
    EXPECT_FALSE(takes(AttentionKernel::tensor_cores, preferred, deck));
    EXPECT_FALSE(takes(AttentionKernel::cuda_cores, preferred, deck));
  }
  Deck others = deck;
  others.data.document_end_token = 0;
  for (const AttentionKernel asked : {AttentionKernel::automatic, AttentionKernel::cudnn})
    EXPECT_FALSE(takes(asked, true, others));
  deck.machine.workspace_mib = static_cast<std::int64_t>(least_mib) - 1;
  EXPECT_FALSE(takes(AttentionKernel::automatic, true, deck));
}

TEST(CudnnAttention, ASmallWorkspaceIsRefused) {
  BufferContext buffers = buffers_with(AttentionKernel::cudnn);
  Deck deck = cudnn_deck();
  std::string text;
  try {
    check_cudnn_workspace(deck, buffers);
  } catch (const BadInput& e) {
    text = e.what();
  }
  EXPECT_NE(text.find("FORGE_ATTENTION = cudnn with machine.workspace_mib = 64"), std::string::npos) << text;
  EXPECT_NE(text.find("legal: workspace_mib " + std::to_string(least_mib) + " or more"), std::string::npos) << text;
  deck.machine.workspace_mib = static_cast<std::int64_t>(least_mib) - 1;
  EXPECT_THROW(check_cudnn_workspace(deck, buffers), BadInput);
  deck.machine.workspace_mib = static_cast<std::int64_t>(least_mib);
  EXPECT_NO_THROW(check_cudnn_workspace(deck, buffers));
  deck.machine.workspace_mib = 64, deck.data.document_end_token = 0;
  EXPECT_NO_THROW(check_cudnn_workspace(deck, buffers)) << "tensor cores need none";
  deck.data.document_end_token = -1, buffers.kernels.attention = AttentionKernel::automatic;
  EXPECT_NO_THROW(check_cudnn_workspace(deck, buffers)) << "automatic comes to what fits";
}

}  // namespace
}  // namespace forge
