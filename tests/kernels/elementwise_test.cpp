#include <algorithm>
#include <numeric>

#include "fixture.hpp"
#include "kernels/kernels.hpp"

namespace forge {
namespace {

using namespace reference;

const std::int64_t sizes[] = {1, 3, 17, 64, 127, 4096, 10001};

template <class From, class To>
void check_convert() {
  for (const auto n : sizes) {
    Field<From> from(1, n, normal_values(n, 1));
    Field<To> to(1, n);
    Stream s(2);
    convert<From, To>(s, from.vector(), to.vector());
    Values expected = from.read(s);
    for (double& x : expected) x = static_cast<double>(To(x));
    EXPECT_TRUE(same_bits(to.read(s), expected));
  }
}

TEST(Elementwise, convert_rounds_once) {
  check_convert<double, double>();
  check_convert<double, float>();
  check_convert<double, bf16>();
  check_convert<float, double>();
  check_convert<float, float>();
  check_convert<float, bf16>();
  check_convert<bf16, double>();
  check_convert<bf16, float>();
  check_convert<bf16, bf16>();
}

template <class T>
void check_sums() {
  using N = Tracked<acc_t<T>>;
  Stream s(2);
  for (const auto n : sizes) {
    Field<T> x(1, n, normal_values(n, 1)), y(1, n, normal_values(n, 2));
    std::vector<N> expected;
    const Values xs = x.read(s), ys = y.read(s);
    for (std::size_t i = 0; i < xs.size(); ++i) expected.push_back(N(xs[i]) + N(ys[i]));
    add<T>(s, x.vector(), y.vector());
    expect_close<T>(y.read(s), expected, "add");
  }
  for (const std::int64_t n : {1, 3, 17, 64, 127}) {
    const std::int64_t R = 5;
    Field<T> x(R, n, normal_values(R * n, 1), 3), bias(1, n, normal_values(n, 2)), copy(R, n, 7);
    const Values xs = x.read(s), bs = bias.read(s);
    copy_rows<T>(s, x.view(), copy.view());
    EXPECT_TRUE(same_bits(copy.read(s), xs));
    std::vector<N> expected;
    for (std::size_t i = 0; i < xs.size(); ++i) expected.push_back(N(xs[i]) + N(bs[i % static_cast<std::size_t>(n)]));
    add_bias<T>(s, bias.vector(), x.view());
    expect_close<T>(x.read(s), expected, "add_bias");
  }
}

TEST(Elementwise, sums) {
  check_sums<double>();
  check_sums<float>();
  check_sums<bf16>();
}

// ---- dropout
// ----------------------------------------------------------------------------------------------------------

struct Rows {
  Field<std::int64_t> samples;
  Field<std::int32_t> positions;
  Rows(const Values& s, const Values& p)
      : samples(1, static_cast<std::int64_t>(s.size()), s), positions(1, static_cast<std::int64_t>(p.size()), p) {}
  Dropout how(double rate, std::uint64_t key) const { return {rate, key, samples.vector(), positions.vector()}; }
};

// The mask by its definition: word (column mod 4) of the draw (sample, position, column / 4).
bool kept(std::uint64_t key, double sample, double position, std::int64_t column, double rate) {
  const auto words = philox({{static_cast<std::uint32_t>(static_cast<std::uint64_t>(sample)),
                              static_cast<std::uint32_t>(static_cast<std::uint64_t>(sample) >> 32),
                              static_cast<std::uint32_t>(column / 4), static_cast<std::uint32_t>(position)}},
                            key);
  return words[static_cast<int>(column % 4)] >= rate * 4294967296.0;
}

template <class T>
void check_dropout(std::int64_t C, double rate) {
  using N = Tracked<acc_t<T>>;
  const Values samples{0, 0, 5, 8589934592.0 + 3}, positions{0, 1, 1, 100000};
  const auto R = static_cast<std::int64_t>(samples.size());
  const Rows rows(samples, positions);
  Field<T> x(R, C, normal_values(R * C, 1), 1), residual(R, C, normal_values(R * C, 2), 2), y(R, C, 3), out(R, C, 4);
  Stream s(2);
  dropout<T>(s, x.view(), y.view(), rows.how(rate, 42));
  residual_add<T>(s, residual.view(), x.view(), out.view(), rows.how(rate, 42));
  const Values xs = x.read(s), rs = residual.read(s);
  std::vector<N> dropped, added;
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t j = 0; j < C; ++j) {
      const bool keeps = rate == 0 || kept(42, samples[r], positions[r], j, rate);
      const N scale = rate == 0 ? N(1.0) : constant<N>(1 / (1 - rate));
      dropped.push_back(keeps ? N(xs[r * C + j]) * scale : N(0.0));
      added.push_back(N(rs[r * C + j]) + dropped.back());
    }
  expect_close<T>(y.read(s), dropped, "dropout");
  expect_close<T>(out.read(s), added, "residual_add");
  dropout<T>(s, x.view(), x.view(), rows.how(rate, 42));
  EXPECT_TRUE(same_bits(x.read(s), y.read(s))) << "in place";
  x.write(xs);
  residual_add<T>(s, residual.view(), x.view(), x.view(), rows.how(rate, 42));
  EXPECT_TRUE(same_bits(x.read(s), out.read(s))) << "out over x";
  x.write(xs);
  residual_add<T>(s, residual.view(), x.view(), residual.view(), rows.how(rate, 42));
  EXPECT_TRUE(same_bits(residual.read(s), out.read(s))) << "out over residual";
}

TEST(Dropout, follows_its_definition) {
  for (const std::int64_t C : {1, 3, 4, 17, 64, 127})
    for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
      SCOPED_TRACE(::testing::Message() << C << " columns, rate " << rate);
      check_dropout<double>(C, rate);
      check_dropout<float>(C, rate);
      check_dropout<bf16>(C, rate);
    }
}

Values mask_of(double rate, std::uint64_t key, std::int64_t R, std::int64_t C) {
  Values samples, positions;
  for (std::int64_t r = 0; r < R; ++r) {
    samples.push_back(static_cast<double>(r / 16));
    positions.push_back(static_cast<double>(r % 16));
  }
  const Rows rows(samples, positions);
  Field<float> x(R, C, Values(static_cast<std::size_t>(R * C), 1.0));
  Stream s(2);
  dropout<float>(s, x.view(), x.view(), rows.how(rate, key));
  return x.read(s);
}

// The share of kept elements is binomial: within six standard deviations (2e-9), also down the columns and along rows.
TEST(Dropout, keeps_the_share_it_says) {
  const std::int64_t R = 256, C = 256;
  for (const double rate : {0.1, 0.5, 0.9}) {
    const Values mask = mask_of(rate, 7, R, C);
    const auto check = [&](double count, double n) {
      EXPECT_LE(std::abs(count - n * (1 - rate)), 6 * std::sqrt(n * rate * (1 - rate)) + 1);
    };
    const auto share = [&](std::int64_t begin, std::int64_t stride, std::int64_t n) {
      double count = 0;
      for (std::int64_t i = 0; i < n; ++i) count += mask[static_cast<std::size_t>(begin + i * stride)] != 0;
      check(count, static_cast<double>(n));
    };
    share(0, 1, R * C);
    for (std::int64_t i = 0; i < 256; ++i) {
      share(i, C, R);
      share(i * C, 1, C);
    }
    const Values other = mask_of(rate, 8, R, C);  // another key: independent of the first
    double both = 0;
    for (std::size_t i = 0; i < mask.size(); ++i) both += mask[i] != 0 && other[i] != 0;
    const double p = (1 - rate) * (1 - rate), n = static_cast<double>(R * C);
    EXPECT_LE(std::abs(both - n * p), 6 * std::sqrt(n * p * (1 - p)));
  }
}

TEST(Dropout, any_number_of_threads_gives_the_same_bits) {
  const Rows rows(Values(33, 4.0), normal_values(33, 1, 0));
  expect_same_on_any_threads([&](Stream& s) {
    Field<float> x(33, 127, normal_values(33 * 127, 1));
    dropout<float>(s, x.view(), x.view(), rows.how(0.3, 5));
    residual_add<float>(s, x.view(), x.view(), x.view(), rows.how(0.3, 6));
    s.synchronize();
    return x.read(s);
  });
}

// ---- embedding
// --------------------------------------------------------------------------------------------------------

template <class T>
void check_embedding(std::int64_t R, std::int64_t C) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  const std::int64_t V = 11, P = 8;
  Field<T> table(V, C, normal_values(V * C, 1)), places(P, C, normal_values(P * C, 2)), out(R, C, 3),
      d_out(R, C, normal_values(R * C, 3), 2);
  Field<A> d_table(V, C, normal_values(V * C, 4));
  Values tokens, positions, order(static_cast<std::size_t>(R));
  for (std::int64_t r = 0; r < R; ++r) {
    tokens.push_back(static_cast<double>(r * r % 10));  // token 10 never occurs, others often
    positions.push_back(static_cast<double>(r % P));
  }
  std::iota(order.begin(), order.end(), 0.0);
  std::stable_sort(order.begin(), order.end(), [&](double a, double b) {
    return tokens[static_cast<std::size_t>(a)] < tokens[static_cast<std::size_t>(b)];
  });
  const auto index = vector_of<std::int32_t>(tokens), at = vector_of<std::int32_t>(positions),
             sorted = vector_of<std::int32_t>(order);
  Stream s(2);
  const Values ws = table.read(s), ps = places.read(s), ds = d_out.read(s), before = d_table.read(s);

  std::vector<N> alone, with_positions, gradient(before.begin(), before.end());
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t j = 0; j < C; ++j) {
      alone.push_back(ws[static_cast<std::int64_t>(tokens[r]) * C + j]);
      with_positions.push_back(alone.back() + N(ps[static_cast<std::int64_t>(positions[r]) * C + j]));
    }
  for (std::int64_t v = 0; v < V; ++v)
    for (std::int64_t j = 0; j < C; ++j)
      gradient[v * C + j] = gradient[v * C + j] + sum<N>(R, [&](std::int64_t r) {
                              return N(tokens[r] == static_cast<double>(v) ? ds[r * C + j] : 0.0);
                            });
  embedding_forward<T>(s, index.vector(), table.view(), at.vector(), {}, out.view());
  expect_close<T>(out.read(s), alone, "tokens");
  embedding_forward<T>(s, index.vector(), table.view(), at.vector(), places.view(), out.view());
  expect_close<T>(out.read(s), with_positions, "tokens and positions");
  embedding_backward<T>(s, index.vector(), sorted.vector(), d_out.view(), d_table.view());
  const Values after = d_table.read(s);
  expect_close<A>(after, gradient, "d_table");
  for (std::int64_t j = 0; j < C; ++j) EXPECT_EQ(after[10 * C + j], before[10 * C + j]);

  if constexpr (std::is_same_v<T, double>) {  // linear in the table: <d_out, E v> = <Eᵀ d_out, v>
    const Values v = normal_values(V * C, 5);
    Field<T> direction(V, C, v);
    embedding_forward<T>(s, index.vector(), direction.view(), at.vector(), {}, out.view());
    d_table.write(Values(static_cast<std::size_t>(V * C), 0.0));
    embedding_backward<T>(s, index.vector(), sorted.vector(), d_out.view(), d_table.view());
    expect_adjoint(dot(ds, out.read(s)), dot(d_table.read(s), v), norm(ds) * norm(out.read(s)), R * C);
  }
}

TEST(Embedding, forward_and_backward) {
  for (const std::int64_t C : {1, 17, 64, 300})
    for (const std::int64_t R : {1, 3, 100}) {
      SCOPED_TRACE(::testing::Message() << R << " x " << C);
      check_embedding<double>(R, C);
      check_embedding<float>(R, C);
      check_embedding<bf16>(R, C);
    }
}

TEST(Embedding, any_number_of_threads_gives_the_same_bits) {
  const std::int64_t R = 100, C = 65;
  Values tokens, order(static_cast<std::size_t>(R));
  for (std::int64_t r = 0; r < R; ++r) tokens.push_back(static_cast<double>(r * 7 / 100));
  std::iota(order.begin(), order.end(), 0.0);
  const auto index = vector_of<std::int32_t>(tokens), sorted = vector_of<std::int32_t>(order);
  expect_same_on_any_threads([&](Stream& s) {
    Field<float> d_out(R, C, normal_values(R * C, 3)), d_table(7, C);
    embedding_backward<float>(s, index.vector(), sorted.vector(), d_out.view(), d_table.view());
    s.synchronize();
    return d_table.read(s);
  });
}

}  // namespace
}  // namespace forge
