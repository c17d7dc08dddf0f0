#include <gtest/gtest.h>

#include "attention_checks.hpp"
#include "core/normal.hpp"

namespace forge::reference {

namespace {

template <class T>
class AttentionParts : public testing::Test {};
TYPED_TEST_SUITE(AttentionParts, Types);

// Rows [begin, end) of one sequence's keys, as a problem of its own.
template <class T>
struct KeyPart {
  Strided<T> k, v, o, d_k, d_v;
  Strided<acc_t<T>> lse;
  AttentionShape shape;
  AttentionMask mask;

  KeyPart(const Case<T>& c, std::int64_t begin, std::int64_t end)
      : k(end - begin, c.n.K, c.n.D, 0),
        v(end - begin, c.n.K, c.n.Dv, 0),
        o(c.n.Tq, c.n.H, c.n.Dv, 0),
        d_k(end - begin, c.n.K, c.n.D, 0),
        d_v(end - begin, c.n.K, c.n.Dv, 0),
        lse(c.n.Tq, c.n.H, 1, 0),
        shape(c.shape()),
        mask(c.mask()) {
    Stream stream;
    const auto rows = [&](const Heads& x) {
      const double* first = x.values.data() + begin * x.heads * x.columns;
      return std::vector<double>(first, first + (end - begin) * x.heads * x.columns);
    };
    k.write(stream, rows(c.in.k));
    v.write(stream, rows(c.in.v));
    shape.key_rows = end - begin;
    mask.position_k = mask.position_k.slice(begin, end);
    if (!mask.document_k.empty()) mask.document_k = mask.document_k.slice(begin, end);
  }
};

// Keys seen in three parts, merged, are the keys seen at once; so are the gradients, from the lse and delta of the
// whole.
TYPED_TEST(AttentionParts, PartsOfTheKeysMakeTheWhole) {
  using T = typename TypeParam::Type;
  for (const bool documents : {false, true}) {
    const Sizes n{.Tq = 140,
                  .Tk = 140,
                  .H = 6,
                  .K = 2,
                  .D = 16,
                  .Dv = 24,
                  .documents = documents,
                  .dropout = 0.2,
                  .kernel = TypeParam::kernel,
                  .aligned = TypeParam::aligned};
    Case<T> c(n);
    const Forward want = forward(c.in);
    const double relative = 4 * relative_error<T>(n, want.score_magnitude);  // three parts and their merges
    std::vector<KeyPart<T>> parts;
    for (const auto& [begin, end] : {std::pair(0, 37), std::pair(37, 101), std::pair(101, 140)})
      parts.emplace_back(c, begin, end);
    for (const KeyPart<T>& p : parts)
      attention_forward<T>(c.stream, p.shape, p.mask, c.q.view(), p.k.view(), p.v.view(), p.o.view(), p.lse.matrix());
    for (int i : {1, 2})
      attention_merge<T>(c.stream, parts[0].o.view(), parts[0].lse.matrix(), parts[i].o.view(), parts[i].lse.matrix());
    expect_close(parts[0].o.read(c.stream), want.o, want.o_magnitude, relative, "o");
    expect_lse(parts[0].lse.read(c.stream), want.lse, 4 * relative_error<acc_t<T>>(n, want.score_magnitude));

    attention_delta<T>(c.stream, c.u.view(), parts[0].o.view(), c.delta.matrix());
    Gradients sum{like(c.in.q), like(c.in.k), like(c.in.v)};
    std::size_t k_at = 0, v_at = 0;
    for (const KeyPart<T>& p : parts) {
      attention_backward<T>(c.stream, p.shape, p.mask, c.u.view(), c.q.view(), p.k.view(), p.v.view(),
                            parts[0].lse.matrix(), c.delta.matrix(), c.d_q.view(), p.d_k.view(), p.d_v.view(),
                            c.sums.view());
      const Heads d_q = c.d_q.read(c.stream);
      for (std::size_t i = 0; i < d_q.values.size(); ++i) sum.q.values[i] += d_q.values[i];
      for (const double x : p.d_k.read(c.stream).values) sum.k.values[k_at++] = x;
      for (const double x : p.d_v.read(c.stream).values) sum.v.values[v_at++] = x;
    }
    expect_close(sum, backward(c.in, c.d_o, want.o, want.lse), relative);
  }
}

// A row's sum has a term e^sink more, whose value is 0; a row without keys sees the sink alone.
template <class T>
void check_sinks(std::int64_t R, std::int64_t H, std::int64_t D) {
  using A = acc_t<T>;
  Stream s(2);
  Strided<T> o(R, H, D, 3);
  Strided<A> lse(R, H, 1, 0), delta(R, H, 1, 0), terms(R, H, 1, 0);
  Strided<T> sinks(1, H, 1, 0);
  std::vector<double> values, logs, numbers, of_delta;
  for (std::int64_t i = 0; i < R * H * D; ++i) values.push_back(normal(1, static_cast<std::uint64_t>(i)));
  for (std::int64_t i = 0; i < R * H; ++i) {
    logs.push_back(i == 1 ? -INFINITY : 3 * normal(2, static_cast<std::uint64_t>(i)));
    of_delta.push_back(normal(3, static_cast<std::uint64_t>(i)));
  }
  for (std::int64_t d = 0; d < D; ++d) values[static_cast<std::size_t>(D + d)] = 0;
  for (std::int64_t h = 0; h < H; ++h) numbers.push_back(0.25 * static_cast<double>(h) - 0.5);
  o.write(s, values);
  lse.write(s, logs);
  delta.write(s, of_delta);
  sinks.write(s, numbers);
  const Heads before = o.read(s), was = lse.read(s), sink = sinks.read(s), deltas = delta.read(s);
  const View<const T, 1> of_heads(sinks.view().data, {{H}});
  attention_sinks<T>(s, of_heads, o.view(), lse.matrix());
  attention_sink_terms<T>(s, of_heads, lse.matrix(), delta.matrix(), terms.matrix());
  const Heads after = o.read(s), now = lse.read(s), gradient = terms.read(s);
  for (std::size_t i = 0; i < now.values.size(); ++i) {
    const double a = was.values[i], b = sink.values[i % static_cast<std::size_t>(H)],
                 total = std::log(std::exp(a) + std::exp(b));
    EXPECT_NEAR(now.values[i], total, 32 * roundoff<A>());
    EXPECT_NEAR(gradient.values[i], -std::exp(b - total) * deltas.values[i], 128 * roundoff<A>());
    for (std::size_t d = i * static_cast<std::size_t>(D); d < (i + 1) * static_cast<std::size_t>(D); ++d)
      EXPECT_NEAR(after.values[d], std::exp(a - total) * before.values[d],
                  (2 * roundoff<T>() + 64 * roundoff<A>()) * 3);
  }
}

TEST(AttentionSinks, AreATermOfTheSumWithoutAValue) {
  for (const std::int64_t D : {1, 16, 72}) {
    check_sinks<double>(9, 3, D);
    check_sinks<float>(9, 3, D);
    check_sinks<bf16>(9, 3, D);
  }
}

// Merging with a part that saw nothing changes nothing, and two of them make one of them.
TYPED_TEST(AttentionParts, MergeOfRowsWithoutKeys) {
  using T = typename TypeParam::Type;
  using A = acc_t<T>;
  const double none = -std::numeric_limits<double>::infinity();
  Stream stream;
  Strided<T> o_a(3, 1, 2, 0), o_b(3, 1, 2, 0);
  Strided<A> lse_a(3, 1, 1, 0), lse_b(3, 1, 1, 0);
  o_a.write(stream, {1, 2, 0, 0, 0, 0});
  lse_a.write(stream, {0.5, none, none});
  o_b.write(stream, {0, 0, 3, 4, 0, 0});
  lse_b.write(stream, {none, -0.25, none});
  attention_merge<T>(stream, o_a.view(), lse_a.matrix(), o_b.view(), lse_b.matrix());
  EXPECT_EQ(o_a.read(stream).values, (std::vector<double>{1, 2, 3, 4, 0, 0}));
  EXPECT_EQ(lse_a.read(stream).values, (std::vector<double>{0.5, -0.25, none}));
}

// Many parts merged in the accumulation type are rounded to bf16 no more than once each: their merge is exact to fp32.
TEST(AttentionMerge, InTheAccumulationType) {
  const std::int64_t R = 50, H = 3, D = 8;
  Stream stream;
  std::vector<Heads> o, lse;
  Strided<bf16> o_b(R, H, D, 3);
  Strided<float> o_a(R, H, D, 2), lse_a(R, H, 1, 0), lse_b(R, H, 1, 0);
  for (std::uint64_t part = 0; part < 5; ++part) {
    o.push_back(random_heads<bf16>(R, H, D, 20 + part));
    lse.push_back(random_heads<float>(R, H, 1, 30 + part));
    for (double& x : lse.back().values) x = static_cast<double>(static_cast<float>(8 * x));
    (part == 0 ? lse_a : lse_b).write(stream, lse.back().values);
    if (part == 0) o_a.write(stream, o[0].values);
    if (part == 0) continue;
    o_b.write(stream, o[part].values);
    attention_merge<bf16>(stream, o_a.view(), lse_a.matrix(), View<const bf16, 3>(o_b.view()), lse_b.matrix());
  }
  const Heads got = o_a.read(stream), got_lse = lse_a.read(stream);
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t h = 0; h < H; ++h) {
      double total = 0;
      for (const Heads& l : lse) total += std::exp(*l.at(r, h));
      // Each of 4 merges rounds an exponent of at most 16 + log 5, two exponentials, their sum and the quotients.
      const double error = 4 * (2 * (16 + 2) + 8) * roundoff<float>();
      EXPECT_NEAR(*got_lse.at(r, h), std::log(total), error * (1 + std::abs(std::log(total))));
      for (std::int64_t d = 0; d < D; ++d) {
        double want = 0, magnitude = 0;
        for (std::size_t i = 0; i < o.size(); ++i) {
          const double term = std::exp(*lse[i].at(r, h)) / total * o[i].at(r, h)[d];
          want += term;
          magnitude += std::abs(term);
        }
        EXPECT_LE(std::abs(got.at(r, h)[d] - want), error * magnitude);
      }
    }
}

#if !defined(FORGE_CUDA)
// Where the workspace has room for the tiles of fewer threads, so many compute, and the bits stay.
TEST(AttentionWorkspace, MayHoldFewerThreads) {
  const Sizes n{.B = 2, .Tq = 130, .Tk = 130, .H = 6, .K = 2, .D = 20, .Dv = 24, .dropout = 0.1};
  Case<float> c(n, 3);
  const auto want = results_of(c);
  for (const std::size_t threads : {2, 1}) {
    Case<float> other(n, 3);
    other.tiles = Buffer(threads * attention_thread_bytes<float>(n.D, n.Dv) + 60);
    EXPECT_EQ(results_of(other), want) << threads << " threads";
  }
  c.tiles = Buffer(attention_thread_bytes<float>(n.D, n.Dv) - 64);
  EXPECT_THROW(c.run_forward(), Error);
  EXPECT_THROW(c.run_backward(), Error);
}
#endif

}  // namespace

}  // namespace forge::reference
