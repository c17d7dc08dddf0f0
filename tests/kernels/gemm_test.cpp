#include "kernels/gemm/gemm.hpp"

#include <gtest/gtest.h>
#include <malloc.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/error.hpp"
#include "fixture.hpp"

// Matrix products against the plain triple loop. The bound is the textbook one for a sum of K products in any order,
// (K + 4) u (|alpha| |A||B| + |beta| |C|) with u the unit roundoff of the accumulating type, once for the product and
// once for the reference, plus one rounding to the type of C.

namespace forge {
namespace {

using reference::Field;
using reference::normal_values;
using reference::Values;

constexpr std::size_t workspace_bytes = 8 << 20;

template <class T>
double unit_roundoff() {
  return std::is_same_v<T, bf16>
             ? 1.0 / 256
             : std::numeric_limits<std::conditional_t<std::is_same_v<T, bf16>, float, T>>::epsilon() / 2;
}

template <class P>
struct Case {
  using T = typename P::first_type;
  using TC = typename P::second_type;

  std::int64_t m, n, k;
  Transpose ta = Transpose::no, tb = Transpose::no;
  double alpha = 1, beta = 0;
  std::int64_t gap = 0;
  int threads = 1;
  std::size_t workspace = workspace_bytes;
  Stream::Kind kind = Stream::Kind::Inline;
  int spared = 0;

  Field<T> a() const {
    const bool flip = ta == Transpose::yes;
    return {flip ? k : m, flip ? m : k, normal_values(m * k, 1), gap};
  }
  Field<T> b() const {
    const bool flip = tb == Transpose::yes;
    return {flip ? n : k, flip ? k : n, normal_values(k * n, 2), gap};
  }
  Field<TC> c() const { return {m, n, normal_values(m * n, 3), gap}; }

  Values run(const Field<T>& a, const Field<T>& b, const Field<TC>& c) const {
    const Buffer memory(workspace);
    Gemm gemm(memory.data(), workspace, false, spared);
    Stream stream(threads, kind);
    gemm(stream, ta, tb, alpha, View<const T, 2>(a.view()), View<const T, 2>(b.view()), beta, c.view());
    stream.synchronize();
    return c.read(stream);
  }
  Values run() const { return run(a(), b(), c()); }

  void check() const {
    const Field<T> fa = a(), fb = b();
    const Field<TC> fc = c();
    const Values va = fa.read(), vb = fb.read(), before = fc.read();
    const Values after = run(fa, fb, fc);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0, absolute = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          const double x = va[static_cast<std::size_t>(ta == Transpose::no ? i * k + p : p * m + i)];
          const double y = vb[static_cast<std::size_t>(tb == Transpose::no ? p * n + j : j * k + p)];
          sum += x * y;
          absolute += std::abs(x * y);
        }
        const auto at = static_cast<std::size_t>(i * n + j);
        const double old = beta == 0 ? 0.0 : beta * before[at];
        const double expected = alpha * sum + old;
        // cuBLASLt may round a product to C's type before it adds what stood in C, as it does with one row in bf16.
        const double rounded_before = beta == 0 ? 0.0 : unit_roundoff<TC>() * std::abs(alpha * sum);
        const double bound = 2.0 * static_cast<double>(k + 4) * unit_roundoff<acc_t<T>>() *
                                 (std::abs(alpha) * absolute + std::abs(old)) +
                             unit_roundoff<TC>() * 1.01 * std::abs(expected) + rounded_before;
        ASSERT_LE(std::abs(after[at] - expected), bound)
            << m << " x " << n << " x " << k << " at " << i << ", " << j << " ta " << (ta == Transpose::yes) << " tb "
            << (tb == Transpose::yes) << " beta " << beta << " gap " << gap << ": " << after[at] << " for " << expected;
      }
  }
};

template <class P>
class GemmTest : public testing::Test {};
using Types =
    testing::Types<std::pair<double, double>, std::pair<float, float>, std::pair<bf16, bf16>, std::pair<bf16, float>>;
TYPED_TEST_SUITE(GemmTest, Types);

TYPED_TEST(GemmTest, AgreesWithTheTripleLoop) {
  constexpr std::int64_t sizes[] = {1, 3, 17, 64, 65, 130};
  constexpr double betas[] = {0, 1, -0.5};
  int turn = 0;
  for (const auto m : sizes)
    for (const auto n : sizes)
      for (const auto k : sizes)
        for (const Transpose ta : {Transpose::no, Transpose::yes})
          for (const Transpose tb : {Transpose::no, Transpose::yes}) {
            ++turn;
            Case<TypeParam>{m, n, k, ta, tb, turn % 2 ? 1.0 : 0.75, betas[turn % 3], turn % 5 ? turn % 7 : 0}.check();
            if (testing::Test::HasFatalFailure()) return;
          }
}

TYPED_TEST(GemmTest, LongSumsAndSeveralThreads) {
  for (const int threads : {1, 2, 3})
    for (const Transpose ta : {Transpose::no, Transpose::yes})
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        Case<TypeParam> c{70, 131, 1030, ta, tb, 1.0, 1.0, 3};
        c.threads = threads;
        c.check();
      }
}

TYPED_TEST(GemmTest, WorksInTheOrderOfAWorkerStream) {
  Case<TypeParam> c{33, 65, 130, Transpose::no, Transpose::yes, 1.0, 0.0, 2};
  c.kind = Stream::Kind::Worker;
  c.threads = 2;
  c.check();
}

TYPED_TEST(GemmTest, AnyWorkspaceWillDo) {
#if defined(FORGE_CUDA)
  GTEST_SKIP() << "cuBLASLt says itself what fits";
#endif
  for (const std::size_t bytes : {0u, 256u, 20000u, 40000u, 100000u, 300000u}) {
    Case<TypeParam> c{61, 190, 300, Transpose::no, Transpose::yes, 1.0, 0.5, 1};
    c.workspace = bytes;
    c.check();
  }
}

// On a GPU; also where none would be left.
TYPED_TEST(GemmTest, SparesMultiprocessors) {
  for (const int spared : {1, 5, 1000}) {
    Case<TypeParam> c{130, 65, 64, Transpose::no, Transpose::yes, 1.0, 0.5, 1};
    c.spared = spared;
    c.check();
  }
}

TYPED_TEST(GemmTest, BetaZeroDoesNotReadC) {
  for (const std::int64_t k : {0, 40}) {
    Case<TypeParam> c{30, 50, k};
    const auto nan = Field<typename TypeParam::second_type>(30, 50, Values(1500, std::nan("")));
    const auto a = c.a();
    const auto b = c.b();
    for (const double value : c.run(a, b, nan)) ASSERT_TRUE(std::isfinite(value));
  }
}

TYPED_TEST(GemmTest, EmptySumsScaleC) {
  Case<TypeParam> c{5, 7, 0};
  for (const double value : c.run()) EXPECT_EQ(value, 0.0);
  c.beta = 0.5;
  const Values before = c.c().read(), after = c.run();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], 0.5 * before[i]);
}

TYPED_TEST(GemmTest, EmptyProductsDoNothing) {
  Case<TypeParam>{0, 5, 3}.run();
  Case<TypeParam>{5, 0, 3}.run();
}

TYPED_TEST(GemmTest, NotANumberReachesItsRowAndNoOther) {
  Case<TypeParam> c{20, 40, 30};
  Values va = normal_values(20 * 30, 1);
  va[7 * 30 + 29] = std::nan("");
  va[9 * 30 + 3] = std::numeric_limits<double>::infinity();
  const Field<typename TypeParam::first_type> a(20, 30, va);
  const auto b = c.b();
  const auto out = c.c();
  const Values after = c.run(a, b, out);
  for (std::size_t i = 0; i < 20; ++i)
    for (std::size_t j = 0; j < 40; ++j) {
      EXPECT_EQ(std::isnan(after[i * 40 + j]), i == 7);
      EXPECT_EQ(std::isinf(after[i * 40 + j]), i == 9);
    }
}

TYPED_TEST(GemmTest, RefusesExtentsThatDoNotMatch) {
  const Field<typename TypeParam::first_type> a(3, 4), b(5, 6);
  const Field<typename TypeParam::second_type> c(3, 6);
  Case<TypeParam> mismatch{3, 6, 4};
  EXPECT_THROW(mismatch.run(a, b, c), Error);
}

// The same bits whatever the number of threads: fp64, and bf16 where it takes forge's own path.
template <class P>
void same_bits_for_threads() {
  for (const Transpose ta : {Transpose::no, Transpose::yes})
    for (const Transpose tb : {Transpose::no, Transpose::yes})
      for (const std::int64_t m : {1, 60, 200}) {
        Case<P> c{m, 150, 700, ta, tb, 1.25, 1.0};
        const Values one = c.run();
        for (const int threads : {2, 3, 5}) {
          c.threads = threads;
          EXPECT_EQ(one, c.run()) << threads << " threads";
        }
      }
}
TEST(Gemm, Fp64IsIndependentOfThreads) {
  same_bits_for_threads<std::pair<double, double>>();
}

// A block of a product has the bits of the whole one: what tensor-parallel ranks compute is what one rank computes.
TEST(Gemm, Fp64BlocksAreIndependentOfTheirPlace) {
#if defined(FORGE_CUDA)
  GTEST_SKIP() << "not promised by cuBLAS";
#endif
  const Case<std::pair<double, double>> whole{50, 100, 300};
  const auto a = whole.a(), b = whole.b(), c = whole.c();
  const Values all = whole.run(a, b, c);
  Gemm gemm(nullptr, 0);
  Stream stream;
  const Field<double> part(11, 37);
  gemm(stream, Transpose::no, Transpose::no, 1.0, View<const double, 2>(a.view().slice(13, 24)),
       View<const double, 2>(columns_of(b.view(), 29, 37)), 0.0, part.view());
  const Values block = part.read(stream);
  for (std::size_t i = 0; i < 11; ++i)
    for (std::size_t j = 0; j < 37; ++j) EXPECT_EQ(block[i * 37 + j], all[(i + 13) * 100 + j + 29]);
}

// Plans are kept for a bounded number of shapes. cuBLASLt keeps choices of its own, the host's fp64 product nothing.
TEST(Gemm, MemoryDoesNotGrowWithTheShapesSeen) {
#if defined(FORGE_CUDA) && !defined(FORGE_VGPU)
  GTEST_SKIP() << "cuBLASLt keeps what it has chosen";
#endif
  constexpr std::int64_t shapes = 12000;
  Stream stream;
  const Field<double> a(shapes, 1), b(1, 1), c(shapes, 1);
  Gemm gemm(nullptr, 0);
  const auto bytes_after = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t rows = begin; rows < end; ++rows) {
      gemm(stream, Transpose::no, Transpose::no, 1.0, View<const double, 2>(a.view().slice(0, rows)),
           View<const double, 2>(b.view()), 0.0, c.view().slice(0, rows));
      if (rows % 64 == 0) stream.synchronize();
    }
    stream.synchronize();
    return static_cast<double>(mallinfo2().uordblks);
  };
  const double first = bytes_after(1, shapes / 2), all = bytes_after(shapes / 2, shapes);
  EXPECT_LT(all - first, 1e6);
}

TEST(Gemm, TheCallersNumberOfThreadsStaysAsItWas) {
  Stream stream(3);
  const Field<float> a(8, 8, normal_values(64, 1)), c(8, 8);
  Gemm gemm(nullptr, 0);
  const int before = omp_get_max_threads();
  gemm(stream, Transpose::no, Transpose::no, 1.0, View<const float, 2>(a.view()), View<const float, 2>(a.view()), 0.0,
       c.view());
  stream.synchronize();
  EXPECT_EQ(omp_get_max_threads(), before);
}

}  // namespace
}  // namespace forge
