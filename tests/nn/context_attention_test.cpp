#include <string_view>

#include "context_rig.hpp"

namespace forge {
namespace {

using namespace context_rig;

constexpr CpMethod methods[] = {CpMethod::ring, CpMethod::all_gather, CpMethod::all_to_all};
constexpr CpMethod all_methods[] = {CpMethod::ring, CpMethod::all_gather, CpMethod::all_to_all, CpMethod::two_level};

template <class T>
class ContextAttention : public testing::Test {
  void SetUp() override {
#if defined(FORGE_CUDA) && !defined(FORGE_VGPU)
    GTEST_SKIP()
        << "ranks are threads with one GPU, which NCCL refuses; tests/gpu/first_day.sh --part ranks has processes";
#endif
  }
};
using Types = testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(ContextAttention, Types);

TYPED_TEST(ContextAttention, RanksAndSequences) {
  for (const CpMethod method : methods)
    for (const int cp : {1, 2, 3, 4})
      for (const std::int64_t b : {1, 2, 3})
        check<TypeParam>({.method = method, .cp = cp, .b = b, .T = 24, .H = 12, .K = 12});
}

// Heads among inner ranks, keys in a ring over outer ones: both levels of 2 to 4 ranks, with all that attention has.
TYPED_TEST(ContextAttention, TwoLevels) {
  for (const auto& [cp, inner] : {std::pair{4, 2}, {6, 2}, {6, 3}, {8, 2}, {8, 4}}) {
    const std::int64_t T = cp == 6 ? 24 : 32, H = 12;
    if (cp == 8 && inner == 4 && left_out(3)) continue;
    const Layout n{.method = CpMethod::two_level, .cp = cp, .two_level = inner, .b = 2, .T = T, .H = H, .K = H};
    const auto with = [&](auto change) {
      Layout other = n;
      change(other);
      check<TypeParam>(other);
    };
    with([](Layout& l) { l.b = 1; });
    for (const std::int64_t K : {1, 2, 6, 12}) with([&](Layout& l) { l.K = K; });
    with([](Layout& l) { l.T *= 8; });
    with([](Layout& l) { l.Dv = 11, l.window = 5, l.documents = true; });
    with([](Layout& l) { l.tp = 2, l.H = l.K = 24, l.Dv = 5, l.dropout = 0.3, l.documents = true; });
    with([](Layout& l) { l.tp = 2, l.H = 24, l.K = 2, l.window = 30; });
  }
}

// Longer than the tiles of attention.
TYPED_TEST(ContextAttention, LongSequences) {
  for (const CpMethod method : methods)
    for (const int cp : {2, 3}) check<TypeParam>({.method = method, .cp = cp, .b = 2, .T = 204, .H = 6, .K = 6});
}

// Grouped and single keys; under all_to_all each rank has some of them, or neighbours have copies of one.
TYPED_TEST(ContextAttention, SharedKeys) {
  for (const CpMethod method : methods) {
    for (const std::int64_t K : {1, 2, 4, 8})
      for (const int cp : {2, 4}) check<TypeParam>({.method = method, .cp = cp, .b = 2, .H = 8, .K = K});
    for (const std::int64_t K : {1, 2, 3, 6}) check<TypeParam>({.method = method, .cp = 3, .b = 2, .H = 6, .K = K});
  }
}

// Values narrower and wider than keys.
TYPED_TEST(ContextAttention, ValueHeads) {
  for (const CpMethod method : methods)
    for (const int cp : {1, 2, 3})
      for (const std::int64_t Dv : {5, 11}) {
        check<TypeParam>({.method = method, .cp = cp, .b = 2, .T = 24, .H = 6, .K = 6, .Dv = Dv});
        check<TypeParam>({.method = method,
                          .cp = cp,
                          .tp = 2,
                          .b = 2,
                          .T = 204,
                          .H = 12,
                          .K = 12,
                          .Dv = Dv,
                          .documents = true,
                          .dropout = 0.2});
      }
}

TYPED_TEST(ContextAttention, WindowAndDocuments) {
  for (const CpMethod method : methods)
    for (const int cp : {1, 2, 3, 4})
      for (const std::int64_t window : {0, 1, 5, 30})
        for (const bool documents : {false, true}) {
          if (window == 0 && !documents) continue;
          check<TypeParam>(
              {.method = method, .cp = cp, .b = 2, .T = 48, .H = 12, .K = 1, .window = window, .documents = documents});
        }
}

// What a rank gives to attention.
struct SeenShapes : OperationTape {
  std::vector<const CudnnAttention*> cudnn;
  void product(const Product&) override {}
  void experts(const ExpertProduct&) override {}
  void scales(Stream&, View<const float, 1>) override {}
  void rows(const Stream&, std::string_view, std::int64_t, std::int64_t) override {}
  void attention(Stream&, const AttentionShape& shape, const AttentionMask&, const AttentionProduct&) override {
    cudnn.push_back(shape.cudnn);
  }
};

// One rank has whole sequences in the order of their positions; rows of several stand in another order, or are a part.
TEST(ContextAttentionByCudnn, IsOfWholeSequences) {
  for (const CpMethod method : methods)
    for (const int cp : {1, 2, 3}) {
      const Whole<double> whole({.method = method, .cp = cp, .b = 2, .T = 24, .H = 6, .K = 6});
      on_ranks(whole, [&](Rank<double>& rank) {
        SeenShapes seen;
        // Never looked into: attention of doubles has other kernels.
        auto* const cudnn = reinterpret_cast<CudnnAttention*>(&seen);
        rank.ctx.operations = &seen;
        rank.services.cudnn = cudnn;
        rank.run_forward();
        rank.run_backward();
        ASSERT_GE(seen.cudnn.size(), 2U);
        for (const CudnnAttention* given : seen.cudnn) EXPECT_EQ(given, cp == 1 ? cudnn : nullptr);
      });
    }
}

// Draws are those of the whole model's heads, positions and samples.
TYPED_TEST(ContextAttention, DropoutAndTensorParallelHeads) {
  for (const CpMethod method : methods)
    for (const int cp : {1, 2, 3})
      for (const int tp : {1, 2})
        check<TypeParam>({.method = method, .cp = cp, .tp = tp, .b = 2, .H = 12, .K = 2, .dropout = 0.3});
  for (const CpMethod method : methods)
    check<TypeParam>({.method = method,
                      .cp = 2,
                      .tp = 3,
                      .b = 2,
                      .T = 140,
                      .H = 12,
                      .K = 6,
                      .window = 50,
                      .documents = true,
                      .dropout = 0.2});
}

// Results of every rank.
template <class T>
std::vector<std::vector<double>> all_results(const Layout& n, int times) {
  const Whole<T> whole(n);
  std::vector<std::vector<double>> all(static_cast<std::size_t>(n.cp * n.tp));
  on_ranks(whole, [&](Rank<T>& rank) {
    for (int i = 0; i < times; ++i) {
      rank.run_forward();
      rank.run_backward();
    }
    all[static_cast<std::size_t>(rank.c * n.tp + rank.t)] = rank.results();
  });
  return all;
}

// The same bits again, from any number of threads, whether or not exchanges run behind the computation, and where the
// computation itself is behind the calls that order it.
TYPED_TEST(ContextAttention, Repeatable) {
  for (const CpMethod method : all_methods) {
    if (left_out(9)) continue;
    Layout n{.method = method, .cp = 4, .two_level = 2, .b = 2, .T = 72, .H = 8, .K = 2, .dropout = 0.1};
    const auto first = all_results<TypeParam>(n, 1);
    EXPECT_EQ(all_results<TypeParam>(n, 3), first) << text(n);
    n.threads = 3;
    EXPECT_EQ(all_results<TypeParam>(n, 1), first) << text(n);
    n.compute = Stream::Kind::Worker;
    EXPECT_EQ(all_results<TypeParam>(n, 2), first) << text(n);
    n.behind = false;
    EXPECT_EQ(all_results<TypeParam>(n, 1), first) << text(n);
  }
}

TEST(ContextBuffers, OneRankNeedsNothing) {
  for (const CpMethod method : methods) {
    const BufferContext c = Rank<bf16>::context_of({.method = method});
    EXPECT_EQ(counted_bytes<ContextForward<bf16>>(c) + counted_bytes<ContextBackward<bf16>>(c), 0u);
    EXPECT_TRUE(sends_over_cp(c, Pass::forward).empty() && sends_over_cp(c, Pass::backward_input).empty());
  }
}

TEST(ContextBuffers, HeadsThatDoNotDivideAreRefused) {
  const auto heads = [](int cp, std::int64_t H, std::int64_t K) {
    return context_heads(Rank<float>::context_of({.method = CpMethod::all_to_all, .cp = cp, .H = H, .K = K}));
  };
  EXPECT_THROW(heads(3, 4, 4), BadInput);
  EXPECT_EQ(heads(6, 6, 2).kv, 1);  // copies
  EXPECT_EQ(heads(2, 8, 4).kv, 2);  // a part
  EXPECT_EQ(heads(3, 6, 2).kv, 2);  // heads 0, 0 | 0, 1 | 1, 1
}

// A failure of one rank ends the others instead of leaving them in an exchange.
TEST(ContextAttentionFailure, EndsEveryRank) {
  for (const CpMethod method : all_methods) {
    const Whole<double> whole(
        {.method = method, .cp = method == CpMethod::two_level ? 4 : 3, .two_level = 2, .H = 12, .K = 3});
    EXPECT_THROW(on_ranks(whole,
                          [](Rank<double>& rank) {
                            if (rank.c == 1) throw BadInput("rank 1 stops");
                            rank.run_forward();
                            rank.run_backward();
                          }),
                 BadInput);
  }
}

}  // namespace
}  // namespace forge
