#include <gtest/gtest.h>

#include <cstring>

#include "attention_checks.hpp"
#include "kernels/attention/attention_cudnn.hpp"
#include "model/cudnn_attention.hpp"

// Attention by cuDNN on a GPU, against the reference.

namespace forge::reference {

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

struct Library {
  Buffer workspace;
  CudnnAttention cudnn;
  explicit Library(std::size_t bytes = 64 * mib) : workspace(bytes), cudnn(workspace.data(), bytes) {}
};

// As attention_test.cpp checks tensor cores. Of groups of heads cuDNN rounds the d_k and d_v of each head before it
// adds them: one rounding more.
void check(CudnnAttention& cudnn, Sizes n) {
  SCOPED_TRACE("B " + std::to_string(n.B) + " T " + std::to_string(n.Tq) + " H " + std::to_string(n.H) + " K " +
               std::to_string(n.K) + " D " + std::to_string(n.D) + " Dv " + std::to_string(n.Dv) + " window " +
               std::to_string(n.window));
  n.Tk = n.Tq;
  n.kernel = AttentionKernel::cudnn;
  n.aligned = true;
  n.cudnn = &cudnn;
  Case<bf16> c(n);
  c.run_forward();
  const Forward want = forward(c.in);
  const double relative = relative_error<bf16>(n, want.score_magnitude);
  expect_close(c.o.read(c.stream), want.o, want.o_magnitude, relative, "o");
  expect_lse(c.lse.read(c.stream), want.lse, relative_error<float>(n, want.score_magnitude));
  c.run_backward();
  expect_close(c.gradients(), backward(c.in, c.d_o, want.o, want.lse), relative + roundoff<bf16>() * (n.H > n.K));
}

TEST(AttentionByCudnn, SequencesAndHeads) {
  Library library;
  for (const std::int64_t T : {2, 64, 65, 130})
    for (const auto& [H, K] : {std::pair(3, 3), std::pair(7, 1), std::pair(6, 2)})
      check(library.cudnn, {.B = 2, .Tq = T, .H = H, .K = K, .D = 16, .Dv = 16});
}

TEST(AttentionByCudnn, HeadSizes) {
  Library library;
  for (const std::int64_t D : {8, 80, 128, 256}) check(library.cudnn, {.Tq = 70, .H = 2, .K = 1, .D = D, .Dv = D});
  check(library.cudnn, {.B = 2, .Tq = 70, .H = 2, .K = 2, .D = 192, .Dv = 128});
}

TEST(AttentionByCudnn, Window) {
  Library library;
  for (const std::int64_t window : {1, 31, 64, 500})
    check(library.cudnn, {.B = 2, .Tq = 200, .H = 2, .K = 1, .D = 16, .Dv = 16, .window = window});
}

// In workspaces of all sizes down to one head of keys, with the same values.
TEST(AttentionByCudnn, PartsOfTheBackward) {
  const Sizes n{.B = 4, .Tq = 200, .Tk = 200, .H = 8, .K = 4, .D = 32, .Dv = 32};
  const CudnnBackward all{n.B, n.Tq, n.H, n.K, n.D, n.Dv};
  for (const auto& [sequences, heads] :
       {std::pair(4, 4), std::pair(2, 4), std::pair(1, 4), std::pair(1, 2), std::pair(1, 1)}) {
    Library library(cudnn_backward_bytes(all.part(sequences, heads)));
    const CudnnBackward part = cudnn_part(all, library.workspace.bytes());
    EXPECT_EQ(part.sequences, sequences);
    EXPECT_EQ(part.kv_heads, heads);
    check(library.cudnn, n);
  }
}

TEST(AttentionByCudnn, AWorkspaceThatIsTooSmall) {
  Library library(mib);
  EXPECT_THROW(check(library.cudnn, {.Tq = 2000, .H = 2, .K = 1, .D = 64, .Dv = 64}), BadInput);
}

TEST(AttentionByCudnn, TheSameBitsInEveryRun) {
  Library library(256 * mib);
  Sizes n{.B = 2, .Tq = 1000, .Tk = 1000, .H = 16, .K = 4, .D = 128, .Dv = 128};
  n.kernel = AttentionKernel::cudnn, n.aligned = true, n.cudnn = &library.cudnn;
  Case<bf16> c(n);
  std::vector<std::vector<double>> first;
  for (int i = 0; i < 5; ++i) {
    const std::vector<std::vector<double>> now = results_of(c);
    if (first.empty()) first = now;
    EXPECT_EQ(now, first);
  }
  EXPECT_EQ(library.cudnn.graphs(), 2);
}

// What cuDNN hasn't is left to tensor cores: no graph is made.
TEST(AttentionByCudnn, TheRestIsForTensorCores) {
  Library library;
  const auto graphs_of = [&](Sizes n, bool peaks = false) {
    n.kernel = AttentionKernel::cudnn, n.cudnn = &library.cudnn;
    Case<bf16> c(n);
    peaks ? c.run_forward_with_peaks() : c.run_forward();
    if (!peaks) c.run_backward();
    c.stream.synchronize();
    return library.cudnn.graphs();
  };
  const Sizes whole{.B = 2, .Tq = 70, .Tk = 70, .H = 2, .K = 1, .D = 16, .Dv = 16, .aligned = true};
  Sizes n = whole;
  n.dropout = 0.2;
  EXPECT_EQ(graphs_of(n), 0);
  n = whole, n.aligned = false;
  EXPECT_EQ(graphs_of(n), 0);
  n = whole, n.Tk = 90;
  EXPECT_EQ(graphs_of(n), 0);
  n = whole, n.D = 12;
  EXPECT_EQ(graphs_of(n), 0);
  EXPECT_EQ(graphs_of(whole, true), 0);
  EXPECT_EQ(graphs_of(whole), 2);
}

TEST(AttentionByCudnn, GraphsAreBounded) {
  Library library;
  const std::int64_t most = CudnnAttention::most_graphs;
  for (std::int64_t T = 2; T < most + 4; ++T) {
    Sizes n{.Tq = T, .Tk = T, .D = 8, .Dv = 8, .kernel = AttentionKernel::cudnn, .aligned = true};
    n.cudnn = &library.cudnn;
    Case<bf16> c(n);
    c.run_forward();
    c.stream.synchronize();
  }
  EXPECT_EQ(library.cudnn.graphs(), most);
}

}  // namespace

}  // namespace forge::reference
