#include "kernels/rows/width_norm.hpp"

#include <algorithm>
#include <array>

#include "fixture.hpp"

namespace forge {
namespace {

using namespace reference;

// Heads of a row that two ranks share: what their kernels make of their parts, with sums added up between, is RMSNorm
// of all queries, and of all keys, which both ranks have with `copies`, each with half of the gradient.
template <class T>
struct WidthRank {
  using A = acc_t<T>;
  std::int64_t R, queries, keys, D;
  Field<T> x, w, key_w, d, y;
  Field<A> rstd, slopes, partial, dw, d_keys;

  WidthRank(std::int64_t rows, std::int64_t query_heads, std::int64_t key_heads, std::int64_t head_dim)
      : R(rows),
        queries(query_heads),
        keys(key_heads),
        D(head_dim),
        x(R, (queries + keys) * D, D),
        w(1, queries * D),
        key_w(1, keys * D),
        d(R, (queries + keys) * D, D),
        y(R, (queries + keys) * D),
        rstd(R, 2),
        slopes(R, 2),
        partial(norm_backward_chunks(R), (queries + keys) * D),
        dw(1, queries * D),
        d_keys(1, keys * D) {}
  HeadWeights<T> weights() { return {w.vector(), key_w.vector(), queries}; }
};

// Columns [first, first + count) of each row, one row behind the other.
Values columns_between(const Values& rows, std::int64_t width, std::int64_t first, std::int64_t count) {
  Values part;
  for (std::int64_t at = first; at < static_cast<std::int64_t>(rows.size()); at += width)
    part.insert(part.end(), rows.begin() + at, rows.begin() + at + count);
  return part;
}
Values beside(const Values& a, const Values& b, std::int64_t rows) {
  Values all;
  const auto na = static_cast<std::int64_t>(a.size()) / rows, nb = static_cast<std::int64_t>(b.size()) / rows;
  for (std::int64_t r = 0; r < rows; ++r) {
    all.insert(all.end(), a.begin() + r * na, a.begin() + (r + 1) * na);
    all.insert(all.end(), b.begin() + r * nb, b.begin() + (r + 1) * nb);
  }
  return all;
}
Values sum_of(const Values& a, const Values& b) {
  Values sum = a;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  return sum;
}

template <class T>
void check(std::int64_t R, std::int64_t queries, std::int64_t keys, std::int64_t D, bool copies) {
  using A = acc_t<T>;
  Stream s(2);
  const std::int64_t own = (queries + keys) * D, q = queries * D, k = keys * D;
  std::array<WidthRank<T>, 2> ranks{{{R, queries, keys, D}, {R, queries, keys, D}}};
  for (std::uint64_t i = 0; i < 2; ++i) {
    WidthRank<T>& rank = ranks[i];
    rank.x.write(normal_values(R * own, 10 + i));
    rank.d.write(normal_values(R * own, 20 + i));
    rank.w.write(normal_values(q, 30 + i));
    rank.key_w.write(normal_values(k, copies ? 40 : 40 + i));
  }
  const auto part = [&](Field<T>& field, bool of_keys) {
    return columns_between(field.read(s), own, of_keys ? q : 0, of_keys ? k : q);
  };
  if (copies) ranks[1].x.write(beside(part(ranks[1].x, false), part(ranks[0].x, true), R));
  const auto add_up = [&](Field<A> WidthRank<T>::*sums) {
    const Values sum = sum_of((ranks[0].*sums).read(s), (ranks[1].*sums).read(s));
    for (WidthRank<T>& rank : ranks) (rank.*sums).write(sum);
  };
  const std::int64_t of_queries = 2 * q, of_keys = copies ? k : 2 * k;
  // The whole rows, of queries and of keys.
  const auto whole = [&](Field<T> WidthRank<T>::*field, bool keys_of_row) {
    const Values a = part(ranks[0].*field, keys_of_row), b = part(ranks[1].*field, keys_of_row);
    return keys_of_row && copies ? a : beside(a, b, R);
  };
  std::array<Values, 2> x{whole(&WidthRank<T>::x, false), whole(&WidthRank<T>::x, true)};
  std::array<Values, 2> d{whole(&WidthRank<T>::d, false), whole(&WidthRank<T>::d, true)};
  if (copies) d[1] = sum_of(part(ranks[0].d, true), part(ranks[1].d, true));
  std::array<Values, 2> w;
  for (int i = 0; i < 2; ++i) {
    append(w[0], ranks[i].w.read(s));
    if (i == 0 || !copies) append(w[1], ranks[i].key_w.read(s));
  }

  const double epsilon = 1e-3;
  for (int i = 0; i < 2; ++i)
    width_squares<T>(s, ranks[i].x.heads(queries + keys), queries, i == 0 || !copies, ranks[i].rstd.view());
  add_up(&WidthRank<T>::rstd);
  for (WidthRank<T>& rank : ranks) {
    width_rstd<T>(s, of_queries, of_keys, epsilon, rank.rstd.view());
    width_norm_forward<T>(s, rank.x.heads(queries + keys), rank.weights(), rank.rstd.view(),
                          rank.y.heads(queries + keys));
    width_slopes<T>(s, rank.d.heads(queries + keys), rank.x.heads(queries + keys), rank.weights(), rank.slopes.view());
  }
  add_up(&WidthRank<T>::slopes);
  for (WidthRank<T>& rank : ranks)
    width_norm_backward<T>(s, rank.d.heads(queries + keys), rank.x.heads(queries + keys), rank.weights(),
                           rank.rstd.view(), rank.slopes.view(), of_queries, copies ? 2 * of_keys : of_keys,
                           rank.partial.view(), rank.dw.vector(), rank.d_keys.vector());

  // Against the same in fp64, by the formula; T's own rounding bounds the distance.
  const double unit = std::is_same_v<T, bf16> ? 1.0 / 64 : std::is_same_v<T, float> ? 1e-4 : 1e-11;
  const auto expect_near = [&](const Values& got, const Values& want, const char* what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    double largest = 0;
    for (const double value : want) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], unit * largest) << what << " " << i;
  };
  for (int kind = 0; kind < 2; ++kind) {
    const bool of_key = kind == 1;
    const std::int64_t width = static_cast<std::int64_t>(w[kind].size());
    Values y, dx, dw(w[kind].size());
    for (std::int64_t r = 0; r < R; ++r) {
      double squares = 0, slope = 0;
      for (std::int64_t j = 0; j < width; ++j) squares += x[kind][r * width + j] * x[kind][r * width + j];
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
      for (std::int64_t j = 0; j < width; ++j) slope += w[kind][j] * d[kind][r * width + j] * x[kind][r * width + j];
      for (std::int64_t j = 0; j < width; ++j) {
        const double in = x[kind][r * width + j], out = d[kind][r * width + j];
        y.push_back(w[kind][j] * in * rstd);
        dx.push_back(rstd * (w[kind][j] * out - in * rstd * rstd * slope / static_cast<double>(width)));
        dw[j] += out * in * rstd;
      }
    }
    Values got_dx = whole(&WidthRank<T>::d, of_key), got_dw;
    if (of_key && copies) got_dx = sum_of(got_dx, part(ranks[1].d, true));
    for (int i = 0; i < 2; ++i) {
      const Values own_dw = of_key ? ranks[i].d_keys.read(s) : ranks[i].dw.read(s);
      if (of_key && copies)
        got_dw = i == 0 ? own_dw : sum_of(got_dw, own_dw);
      else
        append(got_dw, own_dw);
    }
    expect_near(whole(&WidthRank<T>::y, of_key), y, of_key ? "keys" : "queries");
    expect_near(got_dx, dx, of_key ? "gradient of keys" : "gradient of queries");
    expect_near(got_dw, dw, of_key ? "gradient of key weights" : "gradient of query weights");
  }
}

TEST(WidthNorm, is_rmsnorm_of_all_heads_of_all_ranks) {
  for (const auto& [R, queries, keys, D] :
       {std::array<std::int64_t, 4>{1, 1, 1, 2}, std::array<std::int64_t, 4>{9, 3, 1, 10},
        std::array<std::int64_t, 4>{70, 4, 2, 64}})
    for (const bool copies : {false, true}) {
      SCOPED_TRACE(::testing::Message() << R << " x " << queries << " + " << keys << " x " << D << ", " << copies);
      check<double>(R, queries, keys, D, copies);
      check<float>(R, queries, keys, D, copies);
      check<bf16>(R, queries, keys, D, copies);
    }
}

}  // namespace
}  // namespace forge
