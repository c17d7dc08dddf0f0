#include <gtest/gtest.h>

#include <tuple>

#include "../long_run.hpp"
#include "attention_checks.hpp"
#include "kernels/attention/attention_cudnn.hpp"

namespace forge::reference {

namespace {

template <class T>
class Attention : public testing::Test {};
TYPED_TEST_SUITE(Attention, Types);

TYPED_TEST(Attention, SequencesAndHeads) {
  const std::int64_t heads[][2] = {{1, 1}, {3, 1}, {3, 3}, {7, 1}, {6, 2}};
  std::vector<Sizes> cases;
  for (const std::int64_t T : {1, 3, 17, 63, 64, 65, 130})
    for (const auto& h : heads) cases.push_back({.B = 2, .Tq = T, .Tk = T, .H = h[0], .K = h[1], .D = 8, .Dv = 8});
  for (const Sizes& n : test::thinned(cases, 1)) check<TypeParam>(n);
}

TYPED_TEST(Attention, HeadSizes) {
  std::vector<Sizes> cases;
  for (const std::int64_t D : {1, 2, 8, 16, 20, 32, 64, 80, 128, 256}) {
    cases.push_back({.Tq = 33, .Tk = 33, .H = 2, .K = 2, .D = D, .Dv = 24});
    cases.push_back({.Tq = 33, .Tk = 33, .H = 2, .K = 2, .D = 24, .Dv = D});
    check<TypeParam>({.Tq = 70, .Tk = 70, .H = 2, .K = 1, .D = D, .Dv = D});
  }
  for (const Sizes& n : test::thinned(cases, 1)) check<TypeParam>(n);
}

TYPED_TEST(Attention, HeadsOfLatentAttention) {
  check<TypeParam>({.Tq = 70, .Tk = 70, .H = 2, .K = 2, .D = 192, .Dv = 128});
  check<TypeParam>({.Tq = 40, .Tk = 40, .H = 1, .K = 1, .D = 192, .Dv = 128, .dropout = 0.2});
}

TYPED_TEST(Attention, QueriesBehindKeys) {
  for (const std::int64_t Tq : {1, 5, 64})
    check<TypeParam>({.B = 3, .Tq = Tq, .Tk = 150, .H = 4, .K = 2, .D = 16, .Dv = 16, .first_position = 150 - Tq});
}

TYPED_TEST(Attention, Window) {
  for (const std::int64_t window : {1, 2, 31, 64, 129})
    check<TypeParam>({.Tq = 200, .Tk = 200, .H = 2, .K = 1, .D = 8, .Dv = 8, .window = window});
}

TYPED_TEST(Attention, Documents) {
  check<TypeParam>({.B = 2, .Tq = 200, .Tk = 200, .H = 2, .K = 1, .D = 8, .Dv = 8, .documents = true});
  check<TypeParam>({.B = 2, .Tq = 200, .Tk = 200, .H = 2, .K = 1, .D = 8, .Dv = 8, .window = 11, .documents = true});
}

TYPED_TEST(Attention, Dropout) {
  check<TypeParam>({.B = 2, .Tq = 70, .Tk = 70, .H = 3, .K = 1, .D = 8, .Dv = 16, .dropout = 0.3});
  check<TypeParam>({.Tq = 40, .Tk = 90, .H = 2, .K = 2, .D = 8, .Dv = 8, .dropout = 0.9, .first_position = 30});
}

// Small caps bend the scores much, large ones little; not on tensor cores.
TYPED_TEST(Attention, SoftCap) {
  if (on_tensor_cores(TypeParam::kernel)) {
    Case<typename TypeParam::Type> c({.kernel = TypeParam::kernel, .aligned = true, .soft_cap = 1});
    EXPECT_THROW(c.run_forward(), Error);
    EXPECT_THROW(c.run_backward(), Error);
    return;
  }
  for (const double cap : {0.5, 2.0, 50.0}) {
    check<TypeParam>({.B = 2, .Tq = 70, .Tk = 70, .H = 6, .K = 2, .D = 16, .Dv = 12, .soft_cap = cap});
    check<TypeParam>(
        {.Tq = 130, .Tk = 130, .H = 2, .K = 1, .D = 8, .Dv = 8, .window = 31, .documents = true, .soft_cap = cap});
  }
  check<TypeParam>({.Tq = 40, .Tk = 90, .H = 1, .K = 1, .dropout = 0.3, .first_position = 30, .soft_cap = 1});
}

// Each row's largest score is that before the cap, and nothing else changes when it is asked for.
TYPED_TEST(Attention, LargestScores) {
  using T = typename TypeParam::Type;
  for (const double cap : {0.0, 0.7}) {
    if (cap > 0 && on_tensor_cores(TypeParam::kernel)) continue;
    Case<T> c({.B = 2,
               .Tq = 90,
               .Tk = 150,
               .H = 4,
               .K = 2,
               .D = 16,
               .Dv = 8,
               .window = 40,
               .documents = true,
               .first_position = 20,
               .kernel = TypeParam::kernel,
               .aligned = TypeParam::aligned,
               .soft_cap = cap});
    c.run_forward();
    const Heads o = c.o.read(c.stream), lse = c.lse.read(c.stream);
    c.run_forward_with_peaks();
    EXPECT_EQ(c.o.read(c.stream).values, o.values);
    EXPECT_EQ(c.lse.read(c.stream).values, lse.values);
    const Forward want = forward(c.in);
    const Heads got = c.peak.read(c.stream);
    const double bound = relative_error<acc_t<T>>(c.n, want.score_magnitude) * (1 + want.score_magnitude);
    expect_lse(got, want.peak, bound);
    using A = acc_t<T>;
    Strided<A> largest(1, c.n.H, 1, 0);
    largest.write(c.stream, {-1e30, -1e30, 1e30, -1e30});
    std::vector<std::int64_t> filler;
    for (std::int64_t r = 0; r < got.rows; ++r) filler.push_back(r % 3 == 0 ? -1 : r);
    const DeviceList<std::int64_t> samples(c.stream, filler);
    add_peaks<A>(c.stream, View<const A, 2>(c.peak.matrix()), samples.on_device(),
                 View<A, 1>(largest.data(), {{c.n.H}}));
    const Heads heads = largest.read(c.stream);
    for (std::int64_t h = 0; h < c.n.H; ++h) {
      double most = h == 2 ? static_cast<double>(A(1e30)) : -INFINITY;
      for (std::int64_t r = 0; r < got.rows; ++r)
        if (r % 3 > 0) most = std::max(most, *got.at(r, h));
      EXPECT_EQ(*heads.at(0, h), most) << h;
    }
  }
}

// With one key in sight, o = v / (1 − rate) or 0; the share of zeros is binomial.
TEST(AttentionDropout, KeepsTheRightShare) {
  const std::int64_t T = 4000, H = 5;
  const double rate = 0.2;
  Case<float> c({.Tq = T, .Tk = T, .H = H, .K = 1, .D = 2, .Dv = 1, .window = 1, .dropout = rate});
  c.run_forward();
  const Heads o = c.o.read(c.stream);
  double zeros = 0;
  for (const double x : o.values) zeros += x == 0;
  const double n = static_cast<double>(T * H), sigma = std::sqrt(n * rate * (1 - rate));
  EXPECT_NEAR(zeros, n * rate, 5 * sigma);
}

// A rank that holds heads [2, 4) of 4 draws what a rank with all heads draws for them.
TEST(AttentionDropout, IsThatOfTheWholeModelsHead) {
  Case<double> whole({.Tq = 50, .Tk = 50, .H = 4, .K = 4, .D = 8, .Dv = 8, .dropout = 0.5});
  whole.run_forward();
  const Heads all = whole.o.read(whole.stream);
  Case<double> part({.Tq = 50, .Tk = 50, .H = 2, .K = 2, .D = 8, .Dv = 8, .dropout = 0.5});
  for (const auto& [from, to] :
       {std::pair(&whole.q, &part.q), std::pair(&whole.k, &part.k), std::pair(&whole.v, &part.v)}) {
    const Heads x = from->read(whole.stream);
    std::vector<double> half;
    for (std::int64_t r = 0; r < 50; ++r) half.insert(half.end(), x.at(r, 2), x.at(r, 2) + 16);
    to->write(part.stream, half);
  }
  part.in.shape.first_head = 2;
  part.run_forward();
  const Heads o = part.o.read(part.stream);
  for (std::int64_t r = 0; r < 50; ++r)
    for (std::int64_t i = 0; i < 16; ++i) ASSERT_EQ(o.at(r, 0)[i], all.at(r, 2)[i]);
}

// <d_o, J x> = <Jᵀ d_o, x> for a random direction x of q, k and v.
TEST(AttentionBackward, IsTheAdjointOfTheDerivative) {
  for (const std::int64_t T : {1, 3, 17, 65, 130}) {
    const Sizes n{.B = 2,
                  .Tq = T,
                  .Tk = T,
                  .H = 6,
                  .K = 2,
                  .D = 20,
                  .Dv = 12,
                  .window = 50,
                  .dropout = 0.25,
                  .soft_cap = T == 65 ? 1.0 : 0.0};
    SCOPED_TRACE(text(n));
    Case<double> c(n);
    c.run_forward();
    c.run_backward();
    const Gradients x{random_heads<double>(c.in.q.rows, n.H, n.D, 11), random_heads<double>(c.in.k.rows, n.K, n.D, 12),
                      random_heads<double>(c.in.k.rows, n.K, n.Dv, 13)};
    const Gradients d = c.gradients();
    const Heads o = tangent(c.in, x);
    const auto size = [](const Heads& h) { return static_cast<std::int64_t>(h.values.size()); };
    const double left = dot(c.d_o.values.data(), o.values.data(), size(o));
    double right = 0, magnitude = dot_of_magnitudes(c.d_o.values.data(), o.values.data(), size(o));
    const Forward f = forward(c.in);
    const Gradients m = backward(c.in, c.d_o, f.o, f.lse).magnitude;
    for (const auto& [a, b, w] :
         {std::tuple(&d.q, &x.q, &m.q), std::tuple(&d.k, &x.k, &m.k), std::tuple(&d.v, &x.v, &m.v)}) {
      right += dot(a->values.data(), b->values.data(), size(*a));
      magnitude += dot_of_magnitudes(w->values.data(), b->values.data(), size(*w));
    }
    // The tangent's own roundings and those of the three long dot products are of the same kind and length.
    EXPECT_LE(std::abs(left - right), 2 * relative_error<double>(n, f.score_magnitude) * magnitude);
  }
}

// Queries 0 … 39 stand before all keys but one: those see no key or one, and nothing becomes NaN.
TYPED_TEST(Attention, QueriesThatSeeNoKey) {
  using T = typename TypeParam::Type;
  Case<T> c({.Tq = 90,
             .Tk = 70,
             .H = 2,
             .K = 1,
             .D = 8,
             .Dv = 8,
             .first_position = 0,
             .kernel = TypeParam::kernel,
             .aligned = TypeParam::aligned});
  std::vector<std::int32_t> later(70);
  for (int j = 0; j < 70; ++j) later[static_cast<std::size_t>(j)] = 20 + j;
  c.position_k = DeviceList<std::int32_t>(c.stream, later);
  c.in.mask.position_k = c.position_k.on_host();
  c.run_forward();
  c.run_backward();
  const Forward want = forward(c.in);
  const double relative = relative_error<T>(c.n, want.score_magnitude);
  const Heads o = c.o.read(c.stream), lse = c.lse.read(c.stream);
  for (std::int64_t r = 0; r < 20; ++r)
    for (std::int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(*lse.at(r, h), -std::numeric_limits<double>::infinity());
      for (int d = 0; d < 8; ++d) EXPECT_EQ(o.at(r, h)[d], 0);
    }
  expect_close(o, want.o, want.o_magnitude, relative, "o");
  expect_close(c.gradients(), backward(c.in, c.d_o, want.o, want.lse), relative);
}

// A sequence without keys.
TYPED_TEST(Attention, NoKeys) {
  check<TypeParam>({.B = 2, .Tq = 5, .Tk = 0, .H = 2, .K = 1});
}

// Not a number stays visible: in the row that has it, and in no other.
TYPED_TEST(Attention, NotANumber) {
  using T = typename TypeParam::Type;
  Case<T> c({.Tq = 70, .Tk = 70, .H = 1, .K = 1, .kernel = TypeParam::kernel, .aligned = TypeParam::aligned});
  c.in.q.at(66, 0)[3] = std::nan("");
  c.q.write(c.stream, c.in.q.values);
  c.run_forward();
  const Heads o = c.o.read(c.stream);
  for (std::int64_t r = 0; r < 70; ++r)
    for (int d = 0; d < 8; ++d) EXPECT_EQ(std::isnan(o.at(r, 0)[d]), r == 66);
}

// Threads of a CPU's kernels, and rows enough for them.
#if defined(FORGE_CUDA)
const std::vector<int> numbers_of_threads{1};
#else
const std::vector<int> numbers_of_threads{1, 2, 3, 8};
#endif
#if defined(FORGE_VGPU)
constexpr std::int64_t rows_of_threads = 50;
#else
constexpr std::int64_t rows_of_threads = 200;
#endif

// Same bits from every number of threads, inline or in a worker, and with d_q summed in place.
TYPED_TEST(Attention, ThreadsDoNotChangeBits) {
  using T = typename TypeParam::Type;
  const Sizes n{.B = 2,
                .Tq = rows_of_threads,
                .Tk = rows_of_threads,
                .H = 6,
                .K = 2,
                .D = 20,
                .Dv = 20,
                .window = rows_of_threads * 9 / 20,
                .dropout = 0.1,
                .kernel = TypeParam::kernel,
                .aligned = TypeParam::aligned};
  std::vector<std::vector<double>> first;
  for (const int threads : numbers_of_threads) {
    for (const auto kind : {Stream::Kind::Inline, Stream::Kind::Worker}) {
      Case<T> c(n, threads, kind);
      const std::vector<std::vector<double>> now = results_of(c);
      if (first.empty()) first = now;
      EXPECT_EQ(now, first) << threads << " threads";
      if constexpr (std::is_same_v<T, acc_t<T>>) {
        attention_backward<T>(c.stream, c.shape(), c.mask(), c.u.view(), c.q.view(), c.k.view(), c.v.view(),
                              c.lse.matrix(), c.delta.matrix(), c.d_q.view(), c.d_k.view(), c.d_v.view(), {});
        EXPECT_EQ(c.d_q.read(c.stream).values, first[2]);
      }
    }
  }
}

#if defined(FORGE_CUDA)
// What tensor cores compute with, beside the cases that all kernels share.
using OnTensorCores = Computed<bf16, AttentionKernel::tensor_cores>;

// Rows that begin anywhere are copied value by value.
TEST(AttentionOnTensorCores, RowsThatBeginAnywhere) {
  check<Computed<bf16, AttentionKernel::tensor_cores, false>>(
      {.B = 2, .Tq = 70, .Tk = 70, .H = 4, .K = 2, .D = 64, .Dv = 48, .window = 40});
}

// A block looks at 128 tiles of the other side at once: 8,192 rows.
TEST(AttentionOnTensorCores, MoreTilesThanOneLook) {
  const std::int64_t D = 20;  // products of warps on every GPU
  check<OnTensorCores>({.Tq = 5, .Tk = 8400, .D = D, .Dv = D, .window = 300, .first_position = 8395});
  check<OnTensorCores>({.Tq = 8400, .Tk = 5, .D = D, .Dv = D});
}

// Rows that are known to be in order are seen as their positions say, to the bit: with and without a window, where
// tiles end behind the last key, by products of warps and of warpgroups.
TEST(AttentionOnTensorCores, RowsInOrderAreSeenAsTheirPositionsSay) {
  for (const Sizes& sizes : {Sizes{.Tq = 300, .Tk = 300, .H = 2, .D = 64, .Dv = 64},
                             Sizes{.B = 2, .Tq = 200, .Tk = 200, .D = 128, .Dv = 128, .window = 70},
                             Sizes{.Tq = 130, .Tk = 140, .D = 16, .Dv = 16, .window = 1},
                             Sizes{.Tq = 140, .Tk = 130, .D = 192, .Dv = 128, .window = 90},
                             Sizes{.Tq = 150, .Tk = 150, .D = 64, .Dv = 64, .dropout = 0.3}}) {
    SCOPED_TRACE(text(sizes));
    std::vector<std::vector<double>> all[2];
    for (const bool in_order : {false, true}) {
      Sizes n = sizes;
      n.kernel = AttentionKernel::tensor_cores, n.aligned = true, n.in_order = in_order;
      Case<bf16> c(n);
      all[in_order] = results_of(c);
    }
    ASSERT_EQ(all[0], all[1]);
  }
}

TEST(AttentionOnTensorCores, OtherTypesAreRefused) {
  Case<float> c({.kernel = AttentionKernel::tensor_cores});
  EXPECT_THROW(c.run_forward(), Error);
  EXPECT_THROW(c.run_backward(), Error);
}

TEST(AttentionOnTensorCores, ScalesAreAboveZero) {
  Case<bf16> c({.kernel = AttentionKernel::tensor_cores});
  c.in.shape.scale = 0;
  EXPECT_THROW(c.run_forward(), Error);
  EXPECT_THROW(c.run_backward(), Error);
}
#endif

// Of what cuDNN is given it takes calls that are in all points as it wants them.
TEST(AttentionByCudnn, TakesWhatItHas) {
  alignas(16) static bf16 values[8 * 64];
  const auto rows = [&](std::int64_t columns, std::int64_t pitch, std::int64_t from = 0) {
    return View<const bf16, 3>(values + from, {{8, 2, columns}}, pitch);
  };
  AttentionShape shape{2, 4, 4, 0.5, 0, 0, {}};
  shape.kernel = AttentionKernel::cudnn;
  shape.cudnn = reinterpret_cast<CudnnAttention*>(values);  // never looked into
  const auto q = rows(16, 64);
  EXPECT_TRUE(cudnn_takes(shape, q, rows(16, 64, 32), rows(24, 56)));
  EXPECT_FALSE(cudnn_takes(shape, q, rows(12, 64)));
  EXPECT_FALSE(cudnn_takes(shape, q, rows(16, 60)));
  EXPECT_FALSE(cudnn_takes(shape, q, rows(16, 64, 4)));
  const auto refuses = [&](auto&& change) {
    AttentionShape other = shape;
    change(other);
    return !cudnn_takes(other, q);
  };
  EXPECT_FALSE(refuses([](AttentionShape&) {}));
  EXPECT_TRUE(refuses([](AttentionShape& s) { s.kernel = AttentionKernel::tensor_cores; }));
  EXPECT_TRUE(refuses([](AttentionShape& s) { s.cudnn = nullptr; }));
  EXPECT_TRUE(refuses([](AttentionShape& s) { s.key_rows = 8; }));
  EXPECT_TRUE(refuses([](AttentionShape& s) { s.query_rows = s.key_rows = 1; }));
  EXPECT_TRUE(refuses([](AttentionShape& s) { s.dropout = 0.1; }));
  EXPECT_TRUE(refuses([](AttentionShape& s) { s.soft_cap = 30; }));
  EXPECT_TRUE(refuses([](AttentionShape& s) { s.scale = 0; }));
}

TEST(AttentionByCudnn, BuildsWithoutItSaySo) {
  if (cudnn_built_in()) GTEST_SKIP() << "this build has cuDNN";
  EXPECT_THROW(CudnnAttention(nullptr, 0), BadInput);
}

#if defined(FORGE_CUDA)
// Without what cuDNN asks for, tensor cores compute.
TEST(AttentionByCudnn, TheRestIsForTensorCores) {
  const auto run = [](AttentionKernel kernel) {
    Case<bf16> c({.B = 2,
                  .Tq = 70,
                  .Tk = 70,
                  .H = 4,
                  .K = 2,
                  .D = 16,
                  .Dv = 8,
                  .documents = true,
                  .kernel = kernel,
                  .aligned = true});
    c.run_forward();
    c.run_backward();
    const Gradients d = c.gradients();
    return std::vector{c.o.read(c.stream).values, c.lse.read(c.stream).values, d.q.values, d.k.values, d.v.values};
  };
  EXPECT_EQ(run(AttentionKernel::cudnn), run(AttentionKernel::tensor_cores));
}
#endif

TEST(AttentionInput, HeadSizeOver256IsRefused) {
  Case<float> c({.D = 257});
  EXPECT_THROW(c.run_forward(), BadInput);
}

TEST(AttentionInput, HeadsThatDoNotDivideAreRefused) {
  Case<float> c({.H = 3, .K = 2});
  EXPECT_THROW(c.run_forward(), Error);
}

}  // namespace

}  // namespace forge::reference
