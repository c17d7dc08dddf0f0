#include <algorithm>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "fixture.hpp"
#include "kernels/experts/grouped_product.hpp"
#include "kernels/gemm/gemm.hpp"

// Grouped products against the plain loops, with the bound of gemm_test.cpp.

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

using Offsets = std::vector<int64_t>;

struct Sizes {
  Offsets offsets;
  int64_t rows, inner, width;  // rows of the operands (offsets may leave some out), K, N
  int64_t height = 0;          // of each group, where all have one: a batch
};

// Groups of no, one, few and many rows; all rows in one group; one group; rows before, behind and in no group.
const Sizes cases[] = {{{0, 0, 1, 4, 4, 70, 70}, 70, 17, 33},
                       {{3, 30, 31, 100}, 107, 130, 65},
                       {{0, 0, 0, 600, 600}, 600, 40, 140},
                       {{0, 300}, 300, 70, 600},
                       {{5, 5, 5}, 9, 8, 8}};
const Sizes batches[] = {
    {{0, 64, 128, 192}, 192, 33, 48, 64}, {{0, 1, 2, 3, 4}, 4, 20, 7, 1}, {{0, 70}, 70, 64, 64, 70}};

template <class P>
struct Problem {
  using T = typename P::first_type;
  using TC = typename P::second_type;
  static constexpr std::size_t workspace_bytes = 4 << 20;

  Sizes n;
  int64_t groups() const { return static_cast<int64_t>(n.offsets.size()) - 1; }
  Buffer memory{workspace_bytes};
  Gemm gemm{memory.data(), workspace_bytes};

  // C(rows of g) = alpha · A(rows of g) · op(B_g) + beta · C
  void check_rows(Transpose tb, double alpha, double beta, int64_t gap) {
    const int64_t G = groups(), K = n.inner, N = n.width;
    Field<T> a(n.rows, K, normal_values(n.rows * K, 1), gap), b(G, K * N, normal_values(G * K * N, 2), 2 * gap);
    Field<TC> c(n.rows, N, normal_values(n.rows * N, 3), gap);
    const bool flip = tb == Transpose::yes;
    const View<const T, 3> matrices(b.data(), {{G, flip ? N : K, flip ? K : N}}, b.pitch);
    const Values av = a.read(), bv = b.read(), before = c.read();
    Stream s(2);
    if constexpr (std::is_same_v<T, acc_t<T>>) {
      if (n.height > 0) gemm.template batched_rows<T>(s, n.height, tb, alpha, a.view(), matrices, beta, c.view());
    }
    if (n.height == 0) gemm.template grouped_rows<T, TC>(s, n.offsets, tb, alpha, a.view(), matrices, beta, c.view());
    const Values after = c.read(s);
    std::vector<int64_t> group(static_cast<std::size_t>(n.rows), -1);
    for (int64_t g = 0; g < G; ++g)
      for (int64_t r = n.offsets[g]; r < n.offsets[g + 1]; ++r) group[r] = g;
    for (int64_t r = 0; r < n.rows; ++r)
      for (int64_t j = 0; j < N; ++j) {
        const int64_t g = group[r], at = r * N + j;
        if (g < 0) {
          ASSERT_EQ(after[at], before[at]) << "a row of no group";
          continue;
        }
        expect_element(after[at], alpha, beta, before[at], K, [&](int64_t p) {
          return std::pair{av[r * K + p], bv[g * K * N + (flip ? j * K + p : p * N + j)]};
        });
      }
  }

  // C_g = alpha · A(rows of g)ᵀ · B(rows of g) + beta · C_g
  void check_sums(double alpha, double beta, int64_t gap) {
    const int64_t G = groups(), M = n.inner, N = n.width;
    Field<T> a(n.rows, M, normal_values(n.rows * M, 1), gap), b(n.rows, N, normal_values(n.rows * N, 2), gap);
    Field<TC> c(G, M * N, normal_values(G * M * N, 3), gap);
    const View<TC, 3> matrices(c.data(), {{G, M, N}}, c.pitch);
    const Values av = a.read(), bv = b.read(), before = c.read();
    Stream s(2);
    if constexpr (std::is_same_v<T, acc_t<T>>) {
      if (n.height > 0) gemm.template batched_sums<T>(s, n.height, alpha, a.view(), b.view(), beta, matrices);
    }
    if (n.height == 0) gemm.template grouped_sums<T, TC>(s, n.offsets, alpha, a.view(), b.view(), beta, matrices);
    const Values after = c.read(s);
    for (int64_t g = 0; g < G; ++g)
      for (int64_t i = 0; i < M; ++i)
        for (int64_t j = 0; j < N; ++j) {
          const int64_t first = n.offsets[g], at = (g * M + i) * N + j;
          expect_element(after[at], alpha, beta, before[at], n.offsets[g + 1] - first, [&](int64_t p) {
            return std::pair{av[(first + p) * M + i], bv[(first + p) * N + j]};
          });
        }
  }

  template <class Factors>
  static void expect_element(double actual, double alpha, double beta, double old, int64_t length, Factors factors) {
    double total = 0, absolute = 0;
    for (int64_t p = 0; p < length; ++p) {
      const auto [x, y] = factors(p);
      total += x * y;
      absolute += std::abs(x * y);
    }
    const double kept = beta == 0 ? 0.0 : beta * old, expected = alpha * total + kept;
    const double bound =
        2.0 * static_cast<double>(length + 4) * roundoff<acc_t<T>> * (std::abs(alpha) * absolute + std::abs(kept)) +
        1.01 * roundoff<TC> * std::abs(expected);
    ASSERT_LE(std::abs(actual - expected), bound) << actual << " for " << expected;
  }
};

template <class P>
class GroupedTest : public testing::Test {};
using Types =
    testing::Types<std::pair<double, double>, std::pair<float, float>, std::pair<bf16, bf16>, std::pair<bf16, float>>;
TYPED_TEST_SUITE(GroupedTest, Types);

TYPED_TEST(GroupedTest, AgreesWithPlainLoops) {
  std::vector<Sizes> all(std::begin(cases), std::end(cases));
  if (std::is_same_v<typename TypeParam::first_type, acc_t<typename TypeParam::first_type>>)
    all.insert(all.end(), std::begin(batches), std::end(batches));
  for (const Sizes& sizes : all) {
    Problem<TypeParam> problem{sizes};
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      problem.check_rows(tb, 1.0, 0.0, 0);
      problem.check_rows(tb, 0.75, -0.5, 3);
      if (this->HasFatalFailure()) return;
    }
    problem.check_sums(1.0, 1.0, 0);
    problem.check_sums(0.75, -0.5, 3);
    problem.check_sums(1.0, 0.0, 3);
    if (this->HasFatalFailure()) return;
  }
}

// Ranks whose threads differ in number must agree, in every type: tiles are cut by the shapes alone.
TYPED_TEST(GroupedTest, AnyNumberOfThreadsGivesTheSameBits) {
#if defined(FORGE_CUDA)
  GTEST_SKIP() << "one product a group";
#endif
  using T = typename TypeParam::first_type;
  using TC = typename TypeParam::second_type;
  const Offsets offsets{0, 301, 301, 340, 700};
  const int64_t G = 4, R = 700, K = 90, N = 170;
  const Buffer memory(4 << 20);
  expect_same_on_any_threads([&](Stream& s) {
    Gemm gemm(memory.data(), 4 << 20);
    Field<T> x(R, K, normal_values(R * K, 1)), w(G, N * K, normal_values(G * N * K, 2)), dx(R, K);
    Field<T> dy(R, N, normal_values(R * N, 4));
    Field<TC> y(R, N), dw(G, N * K, normal_values(G * N * K, 3));
    const View<const T, 3> weights(w.data(), {{G, N, K}});
    gemm.grouped_rows<T, TC>(s, offsets, Transpose::yes, 1.0, x.view(), weights, 0.0, y.view());
    gemm.grouped_rows<T, T>(s, offsets, Transpose::no, 1.0, dy.view(), weights, 0.0, dx.view());
    gemm.grouped_sums<T, TC>(s, offsets, 1.0, dy.view(), x.view(), 1.0, View<TC, 3>(dw.data(), {{G, N, K}}));
    s.synchronize();
    Values all = y.read(s);
    append(all, dx.read(s));
    append(all, dw.read(s));
    return all;
  });
}

// Begins that the stream finds when it gets there, of all places of an order or a part of them, against the host's.
// What stands there before, which the host could see, is another order.
TYPED_TEST(GroupedTest, BeginsThatTheStreamFindsGiveTheSameBits) {
#if defined(FORGE_CUDA)
  GTEST_SKIP() << "grouped_product_test.cpp";
#endif
  using T = typename TypeParam::first_type;
  using A = acc_t<T>;
  const Offsets order{0, 0, 301, 301, 340, 688, 688};  // the first, the third and the last have none
  const int64_t G = 6, K = 40, N = 50;
  const Buffer memory(4 << 20);
  Gemm gemm(memory.data(), 4 << 20);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 700}, {200, 345}, {350, 700}, {690, 700}})
    for (const auto kind : {Stream::Kind::Inline, Stream::Kind::Worker}) {
      const int64_t R = end - begin;
      Field<T> x(R, K, normal_values(R * K, 1)), w(G, N * K, normal_values(G * N * K, 2)), dy(R, N);
      dy.write(normal_values(R * N, 4));
      Field<T> y(R, N), late_y(R, N), dx(R, K), late_dx(R, K);
      Field<A> dw(G, N * K), late_dw(G, N * K);
      const View<const T, 3> weights(w.data(), {{G, N, K}});
      Offsets clamped, found(order.size(), 0);
      for (const int64_t at : order) clamped.push_back(std::clamp(at, begin, end) - begin);
      Stream s(2, kind);
      gemm.grouped_rows<T, T>(s, clamped, Transpose::yes, 1.0, x.view(), weights, 0.0, y.view());
      gemm.grouped_rows<T, T>(s, clamped, Transpose::no, 1.0, dy.view(), weights, 0.0, dx.view());
      gemm.grouped_rows<T, T>(s, clamped, Transpose::yes, 0.7, x.view(), weights, 1.0, y.view());
      gemm.grouped_sums<T, A>(s, clamped, 1.0, dy.view(), x.view(), 1.0, View<A, 3>(dw.data(), {{G, N, K}}));
      s.submit([&] { found = order; });
      const RowGroups groups{G, found.data(), begin, end};
      gemm.grouped_rows<T>(s, groups, Transpose::yes, x.view(), weights, late_y.view());
      gemm.grouped_rows<T>(s, groups, Transpose::no, dy.view(), weights, late_dx.view());
      gemm.grouped_rows<T>(s, groups, Transpose::yes, x.view(), weights, late_y.view(), 0.7, true);
      gemm.grouped_sums<T>(s, groups, dy.view(), x.view(), true, View<A, 3>(late_dw.data(), {{G, N, K}}));
      s.synchronize();
      EXPECT_EQ(late_y.read(s), y.read(s));
      EXPECT_EQ(late_dx.read(s), dx.read(s));
      EXPECT_EQ(late_dw.read(s), dw.read(s));
      EXPECT_EQ(late_dw.read(s) == Values(to_size(G * N * K), 0.0), begin == 690) << "no expert has these rows";
    }
}

TEST(Grouped, ShapesThatDoNotMatchAreRefused) {
  Gemm gemm(nullptr, 0);
  Stream s;
  Field<float> a(10, 4), b(2, 12), c(10, 3);
  const View<const float, 3> matrices(b.data(), {{2, 4, 3}});
  const auto run = [&](const Offsets& offsets, Transpose tb) {
    gemm.grouped_rows<float, float>(s, offsets, tb, 1.0, a.view(), matrices, 0.0, c.view());
  };
  run({0, 4, 10}, Transpose::no);
  EXPECT_THROW(run({0, 4, 10}, Transpose::yes), Error);
  EXPECT_THROW(run({0, 4, 11}, Transpose::no), Error);
  EXPECT_THROW(run({0, 10}, Transpose::no), Error);
}

}  // namespace
}  // namespace forge
