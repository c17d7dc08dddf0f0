#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "fixture.hpp"
#include "kernels/kernels.hpp"

namespace forge {
namespace {

using namespace reference;

// Rows in the order of their tokens, those of one token in their own.
Values rows_by_token(const Values& tokens) {
  Values order(tokens.size());
  std::iota(order.begin(), order.end(), 0.0);
  std::stable_sort(order.begin(), order.end(), [&](double a, double b) {
    return tokens[static_cast<std::size_t>(a)] < tokens[static_cast<std::size_t>(b)];
  });
  return order;
}

template <class T>
void check_embedding(std::int64_t R, std::int64_t C) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  const std::int64_t V = 11, P = 8;
  Field<T> table(V, C, normal_values(V * C, 1)), places(P, C, normal_values(P * C, 2)), out(R, C, 3),
      d_out(R, C, normal_values(R * C, 3), 2);
  Field<A> d_table(V, C, normal_values(V * C, 4));
  Values tokens, positions;
  for (std::int64_t r = 0; r < R; ++r) {
    tokens.push_back(static_cast<double>(r * r % 10));  // token 10 never occurs, others often
    positions.push_back(static_cast<double>(r % P));
  }
  const auto index = vector_of<std::int32_t>(tokens), at = vector_of<std::int32_t>(positions),
             sorted = vector_of<std::int32_t>(rows_by_token(tokens));
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
  for (N& x : alone) x = N(3.0) * x;
  embedding_forward<T>(s, index.vector(), table.view(), at.vector(), {}, out.view(), 3);
  expect_close<T>(out.read(s), alone, "scaled tokens");
  embedding_backward<T>(s, index.vector(), sorted.vector(), d_out.view(), d_table.view());
  const Values after = d_table.read(s);
  expect_close<A>(after, gradient, "d_table");
  for (std::int64_t j = 0; j < C; ++j) EXPECT_EQ(after[10 * C + j], before[10 * C + j]);

  if constexpr (std::is_same_v<T, double>) {  // linear in the table: <d_out, E v> = <Eᵀ d_out, v>
    const Values v = normal_values(V * C, 5);
    Field<T> direction(V, C, v);
    embedding_forward<T>(s, index.vector(), direction.view(), at.vector(), {}, out.view(), 1.7);
    d_table.write(Values(static_cast<std::size_t>(V * C), 0.0));
    embedding_backward<T>(s, index.vector(), sorted.vector(), d_out.view(), d_table.view(), 1.7);
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

// −1: another rank's token. Its row is zero, or its position's; its gradient goes nowhere.
template <class T>
void check_absent_tokens(const Values& tokens) {
  using A = acc_t<T>;
  const auto R = static_cast<std::int64_t>(tokens.size());
  const std::int64_t V = 4, P = 3, C = 17;
  // A row stands before each table, which must be neither read nor written.
  Field<T> table(1 + V, C, normal_values((1 + V) * C, 1)), places(P, C, normal_values(P * C, 2)), out(R, C, 3),
      d_out(R, C, normal_values(R * C, 3));
  Field<A> d_table(1 + V, C, normal_values((1 + V) * C, 4));
  Values positions;
  for (std::int64_t r = 0; r < R; ++r) positions.push_back(static_cast<double>(r % P));
  const auto index = vector_of<std::int32_t>(tokens), at = vector_of<std::int32_t>(positions),
             sorted = vector_of<std::int32_t>(rows_by_token(tokens));
  Stream s(2);
  const Values ws = table.read(s), ps = places.read(s), ds = d_out.read(s), before = d_table.read(s);
  Values alone, with_positions, gradient = before;
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t j = 0; j < C; ++j) {
      const auto token = static_cast<std::int64_t>(tokens[static_cast<std::size_t>(r)]);
      const A row = token < 0 ? A(0) : A(ws[static_cast<std::size_t>((1 + token) * C + j)]);
      alone.push_back(static_cast<double>(row));
      with_positions.push_back(static_cast<double>(T(row + A(ps[static_cast<std::size_t>(r % P * C + j)]))));
    }
  for (std::int64_t v = 0; v < V; ++v)
    for (std::int64_t j = 0; j < C; ++j) {
      A sum = 0;
      for (std::int64_t r = 0; r < R; ++r)
        if (tokens[static_cast<std::size_t>(r)] == static_cast<double>(v))
          sum += A(ds[static_cast<std::size_t>(r * C + j)]);
      double& to = gradient[static_cast<std::size_t>((1 + v) * C + j)];
      to = static_cast<double>(A(A(to) + sum));
    }
  embedding_forward<T>(s, index.vector(), table.view().slice(1, 1 + V), at.vector(), {}, out.view());
  EXPECT_TRUE(same_bits(out.read(s), alone));
  embedding_forward<T>(s, index.vector(), table.view().slice(1, 1 + V), at.vector(), places.view(), out.view());
  EXPECT_TRUE(same_bits(out.read(s), with_positions));
  embedding_backward<T>(s, index.vector(), sorted.vector(), d_out.view(), d_table.view().slice(1, 1 + V));
  EXPECT_TRUE(same_bits(d_table.read(s), gradient));
}

TEST(Embedding, tokens_of_other_ranks) {
  for (const Values& tokens : {Values{-1, 2, -1, 0, 2, -1, 3}, Values{0, -1}, Values{-1, -1, -1}, Values{-1}}) {
    check_absent_tokens<double>(tokens);
    check_absent_tokens<float>(tokens);
    check_absent_tokens<bf16>(tokens);
  }
}

TEST(Embedding, any_number_of_threads_gives_the_same_bits) {
  const std::int64_t R = 100, C = 65;
  Values tokens, order(static_cast<std::size_t>(R));
  for (std::int64_t r = 0; r < R; ++r) tokens.push_back(static_cast<double>(r * 7 / 100));
  std::iota(order.begin(), order.end(), 0.0);
  const auto index = vector_of<std::int32_t>(tokens), sorted = vector_of<std::int32_t>(rows_by_token(tokens));
  expect_same_on_any_threads([&](Stream& s) {
    Field<float> d_out(R, C, normal_values(R * C, 3)), d_table(7, C);
    embedding_backward<float>(s, index.vector(), sorted.vector(), d_out.view(), d_table.view());
    s.synchronize();
    return d_table.read(s);
  });
}

}  // namespace
}  // namespace forge
