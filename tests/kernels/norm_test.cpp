#include <array>

#include "fixture.hpp"
#include "kernels/kernels.hpp"
#include "norm_reference.hpp"

namespace forge {
namespace {

using namespace reference;

template <class N>
std::vector<N> lifted(const Values& v) {
  return std::vector<N>(v.begin(), v.end());
}
Values row_of(const Values& v, std::int64_t r, std::int64_t n) {
  return Values(v.begin() + r * n, v.begin() + (r + 1) * n);
}

std::vector<Dual> along(const Values& v, const Values& direction) {
  std::vector<Dual> d;
  for (std::size_t i = 0; i < v.size(); ++i) d.emplace_back(v[i], direction[i]);
  return d;
}

// A norm of R rows of C columns in device memory, with all that its kernels read and write.
template <class T>
struct Problem {
  using A = acc_t<T>;
  Kind kind;
  std::int64_t R, C;
  double epsilon = 1e-5;
  Field<T> x, w, b, dy, residual, y, dx;
  Field<A> mean, rstd, partial, dw, db;

  Problem(Kind k, std::int64_t rows, std::int64_t columns, std::int64_t gap)
      : kind(k),
        R(rows),
        C(columns),
        x(R, C, normal_values(R * C, 1, 1.5), gap),
        w(1, C, normal_values(C, 2)),
        b(1, C, normal_values(C, 3)),
        dy(R, C, normal_values(R * C, 4), gap),
        residual(R, C, normal_values(R * C, 5), gap),
        y(R, C, gap),
        dx(R, C, gap),
        mean(1, R),
        rstd(1, R),
        partial(2 * norm_backward_chunks(R), C),
        dw(1, C),
        db(1, C) {}

  void forward(Stream& s) {
    if (kind == Kind::rms)
      rmsnorm_forward<T>(s, x.view(), w.vector(), epsilon, y.view(), rstd.vector());
    else
      layernorm_forward<T>(s, x.view(), w.vector(), b.vector(), epsilon, y.view(), mean.vector(), rstd.vector());
  }
  // Of x + residual, which goes to dx.
  void residual_forward(Stream& s) {
    if (kind == Kind::rms)
      residual_rmsnorm_forward<T>(s, residual.view(), x.view(), w.vector(), epsilon, dx.view(), y.view(),
                                  rstd.vector());
    else
      residual_layernorm_forward<T>(s, residual.view(), x.view(), w.vector(), b.vector(), epsilon, dx.view(), y.view(),
                                    mean.vector(), rstd.vector());
  }
  void backward(Stream& s, View<const T, 2> extra, View<T, 2> to) {
    if (kind == Kind::rms)
      rmsnorm_backward<T>(s, dy.view(), x.view(), w.vector(), rstd.vector(), extra, to, partial.view(), dw.vector());
    else
      layernorm_backward<T>(s, dy.view(), x.view(), w.vector(), mean.vector(), rstd.vector(), extra, to, partial.view(),
                            dw.vector(), db.vector());
  }
};

template <class T>
void check_values(Kind kind, std::int64_t R, std::int64_t C, std::int64_t gap) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  Problem<T> p(kind, R, C, gap);
  Stream s(2);
  p.forward(s);
  const Values x = p.x.read(s), dy = p.dy.read(s), residual = p.residual.read(s);
  const auto w = lifted<N>(p.w.read(s)), b = lifted<N>(p.b.read(s));
  std::vector<N> y, mean, rstd;
  for (std::int64_t r = 0; r < R; ++r) {
    const auto row = forward_row<N>(kind, lifted<N>(row_of(x, r, C)), w, b, p.epsilon);
    y.insert(y.end(), row.y.begin(), row.y.end());
    mean.push_back(row.mean);
    rstd.push_back(row.rstd);
  }
  expect_close<T>(p.y.read(s), y, "y");
  expect_close<A>(p.rstd.read(s), rstd, "rstd");
  if (kind == Kind::layer) expect_close<A>(p.mean.read(s), mean, "mean");

  // Backward from the statistics as the forward kernel stored them.
  const auto stored_mean = lifted<N>(p.mean.read(s)), stored_rstd = lifted<N>(p.rstd.read(s));
  std::vector<N> dx, dx_alone, dw(static_cast<std::size_t>(C)), db(static_cast<std::size_t>(C));
  for (std::int64_t r = 0; r < R; ++r)
    for (const N& value : backward_row<N>(kind, lifted<N>(row_of(dy, r, C)), lifted<N>(row_of(x, r, C)), w,
                                          stored_mean[r], stored_rstd[r])) {
      dx_alone.push_back(value);
      dx.push_back(N(residual[dx.size()]) + value);
    }
  for (std::int64_t j = 0; j < C; ++j) {
    dw[j] = sum<N>(R, [&](std::int64_t r) {
      const N c = kind == Kind::layer ? N(x[r * C + j]) - stored_mean[r] : N(x[r * C + j]);
      return N(dy[r * C + j]) * (c * stored_rstd[r]);
    });
    db[j] = sum<N>(R, [&](std::int64_t r) { return N(dy[r * C + j]); });
  }
  p.backward(s, p.residual.view(), p.dx.view());
  expect_close<T>(p.dx.read(s), dx, "dx with residual");
  expect_close<A>(p.dw.read(s), dw, "dw");
  if (kind == Kind::layer) expect_close<A>(p.db.read(s), db, "db");
  p.backward(s, {}, p.dx.view());  // adds to dw and db
  expect_close<T>(p.dx.read(s), dx_alone, "dx");
  for (auto* sums : {&dw, &db})
    for (N& value : *sums) value = value + value;
  expect_close<A>(p.dw.read(s), dw, "dw added twice");
  if (kind == Kind::layer) expect_close<A>(p.db.read(s), db, "db added twice");
  p.backward(s, p.residual.view(), p.residual.view());
  expect_close<T>(p.residual.read(s), dx, "dx over its residual");
}

// To the bit what the sum and then its norm give.
template <class T>
void check_residual(Kind kind, std::int64_t R, std::int64_t C, std::int64_t gap) {
  Problem<T> p(kind, R, C, gap);
  Stream s(2);
  p.residual_forward(s);
  const Values h = p.dx.read(s), y = p.y.read(s), mean = p.mean.read(s), rstd = p.rstd.read(s);
  residual_add<T>(s, p.residual.view(), p.x.view(), p.x.view(), Dropout{});
  p.forward(s);
  EXPECT_TRUE(same_bits(h, p.x.read(s)));
  EXPECT_TRUE(same_bits(y, p.y.read(s)));
  EXPECT_TRUE(same_bits(mean, p.mean.read(s)));
  EXPECT_TRUE(same_bits(rstd, p.rstd.read(s)));
}

void check_adjoint(Kind kind, std::int64_t R, std::int64_t C) {
  Problem<double> p(kind, R, C, 3);
  Stream s(2);
  p.forward(s);
  p.backward(s, {}, p.dx.view());
  const Values x = p.x.read(s), u = p.dy.read(s), vx = normal_values(R * C, 6), vw = normal_values(C, 7),
               vb = normal_values(C, 8);
  const auto w = along(p.w.read(s), vw), b = along(p.b.read(s), vb);
  Values jv;
  for (std::int64_t r = 0; r < R; ++r)
    for (const Dual& value : forward_row<Dual>(kind, along(row_of(x, r, C), row_of(vx, r, C)), w, b, p.epsilon).y)
      jv.push_back(value.d);
  const Values dx = p.dx.read(s), dw = p.dw.read(s), db = p.db.read(s);
  expect_adjoint(dot(u, jv), dot(dx, vx) + dot(dw, vw) + dot(db, vb),
                 norm(u) * norm(jv) + norm(dx) * norm(vx) + norm(dw) * norm(vw) + norm(db) * norm(vb), R * C);
}

// Rows and columns: odd ones, enough rows for several partial sums (core/partials.hpp), and rows that fill a block of a
// GPU, or more than its registers.
const std::array<std::int64_t, 2> sizes[] = {{1, 1},   {5, 1},     {200, 1},  {1, 3},    {5, 3},
                                             {1, 17},  {200, 17},  {5, 64},   {1, 127},  {5, 127},
                                             {1, 300}, {130, 300}, {9, 2048}, {2, 2056}, {1, 9001}};

template <class T>
void check_all_values(Kind kind) {
  for (const auto& [R, C] : sizes)
    for (const std::int64_t gap : {0, 5}) {
      SCOPED_TRACE(::testing::Message() << R << " x " << C << ", gap " << gap);
      check_values<T>(kind, R, C, gap);
      check_residual<T>(kind, R, C, gap);
      if (::testing::Test::HasFatalFailure()) return;
    }
}

TEST(Norm, rms_matches_its_formula) {
  check_all_values<double>(Kind::rms);
  check_all_values<float>(Kind::rms);
  check_all_values<bf16>(Kind::rms);
}

TEST(Norm, layer_matches_its_formula) {
  check_all_values<double>(Kind::layer);
  check_all_values<float>(Kind::layer);
  check_all_values<bf16>(Kind::layer);
}

TEST(Norm, backward_is_the_adjoint) {
  for (const Kind kind : {Kind::rms, Kind::layer})
    for (const auto& [R, C] : sizes) {
      SCOPED_TRACE(::testing::Message() << R << " x " << C);
      check_adjoint(kind, R, C);
    }
}

TEST(Norm, any_number_of_threads_gives_the_same_bits) {
  for (const Kind kind : {Kind::rms, Kind::layer})
    expect_same_on_any_threads([&](Stream& s) {
      Problem<float> p(kind, 200, 300, 5);
      p.forward(s);
      p.backward(s, p.residual.view(), p.dx.view());
      s.synchronize();
      Values all = p.y.read(s);
      append(all, p.dx.read(s));
      append(all, p.dw.read(s));
      append(all, p.db.read(s));
      return all;
    });
}

// Rows that a GPU reads ahead 16 bytes at a time, and the same ones where they begin at no multiple of 16 bytes: to the
// bit the same results, of so many rows that each place of those read ahead is used again.
template <class T>
void check_places(Kind kind, std::int64_t R, std::int64_t C) {
  Stream s(2);
  Values results[2];
  for (const std::int64_t gap : {0, 5}) {
    Problem<T> p(kind, R, C, gap);
    p.forward(s);
    p.backward(s, p.residual.view(), p.dx.view());
    Values& all = results[gap == 0];
    all = p.y.read(s);
    append(all, p.dx.read(s));
    append(all, p.dw.read(s));
    append(all, p.db.read(s));
    p.backward(s, p.residual.view(), p.dy.view());
    append(all, p.dy.read(s));
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

TEST(Norm, backward_gives_the_same_bits_wherever_rows_begin) {
  for (const Kind kind : {Kind::rms, Kind::layer})
    for (const std::int64_t columns : {256, 2048, 4096, 9008}) {
      SCOPED_TRACE(::testing::Message() << columns << " columns");
      check_places<bf16>(kind, 20, columns);
      if (columns < 4096) check_places<float>(kind, 20, columns);
      if (columns < 2048) check_places<double>(kind, 20, columns);
    }
}

TEST(Norm, column_sums_of_no_rows_add_nothing) {
  Field<float> dy(0, 17), partial(1, 17), db(1, 17, normal_values(17, 1));
  Stream s;
  const Values before = db.read(s);
  column_sum<float>(s, dy.view(), partial.view(), db.vector());
  EXPECT_TRUE(same_bits(before, db.read(s)));
}

// ---- heads: RMSNorm of each one, inside a wider buffer; the first ones have other weights than the rest
// ----------------------------------------------------------------

template <class T>
struct HeadProblem {
  using A = acc_t<T>;
  std::int64_t R, n, D, queries;
  double epsilon = 1e-6;
  Field<T> x, w, key_w, dy, y, dx;
  Field<A> rstd, partial, dw, d_keys;

  HeadProblem(std::int64_t rows, std::int64_t heads, std::int64_t head_dim)
      : R(rows),
        n(heads),
        D(head_dim),
        queries((n + 1) / 2),
        x(R, n * D, normal_values(R * n * D, 1), 2 * D),
        w(1, D, normal_values(D, 2)),
        key_w(1, D, normal_values(D, 4)),
        dy(R, n * D, normal_values(R * n * D, 3), D),
        y(R, n * D, 3 * D),
        dx(R, n * D, D),
        rstd(R, n, 2),
        partial(norm_backward_chunks(R), D),
        dw(1, D),
        d_keys(1, D) {}
  HeadWeights<T> weights() { return {w.vector(), key_w.vector(), queries}; }
  void run(Stream& s, View<const std::int32_t, 1> positions = {}, View<const A, 2> cosine = {},
           View<const A, 2> sine = {}) {
    head_norm_forward<T>(s, x.heads(n), weights(), epsilon, positions, cosine, sine, y.heads(n), rstd.view());
    copy_rows<T>(s, dy.view(), dx.view());
    head_norm_backward<T>(s, dx.heads(n), x.heads(n), weights(), rstd.view(), positions, cosine, sine, partial.view(),
                          dw.vector(), d_keys.vector());
  }
};

// What backward has left, where dy is the gradient of the norm's output.
template <class T>
void check_heads(HeadProblem<T>& p, Stream& s, const Values& dy) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  const std::int64_t R = p.R, n = p.n, D = p.D;
  const Values x = p.x.read(s), scales = p.rstd.read(s), results = p.dx.read(s);
  const auto of_queries = lifted<N>(p.w.read(s)), of_keys = lifted<N>(p.key_w.read(s));
  std::vector<N> rstd, dx;
  for (std::int64_t q = 0; q < R * n; ++q) {
    const auto& w = q % n < p.queries ? of_queries : of_keys;
    const auto head = lifted<N>(row_of(x, q, D));
    const auto backward = backward_row<N>(Kind::rms, lifted<N>(row_of(dy, q, D)), head, w, N(0.0), N(scales[q]));
    rstd.push_back(forward_row<N>(Kind::rms, head, w, {}, p.epsilon).rstd);
    dx.insert(dx.end(), backward.begin(), backward.end());
  }
  const auto weight_gradient = [&](bool keys) {
    std::vector<N> of;
    for (std::int64_t j = 0; j < D; ++j)
      of.push_back(sum<N>(R * n, [&](std::int64_t q) {
        const bool own = (q % n >= p.queries) == keys;
        return own ? N(dy[q * D + j]) * (N(x[q * D + j]) * N(scales[q])) : N(0.0);
      }));
    return of;
  };
  expect_close<A>(scales, rstd, "rstd");
  expect_close<T>(results, dx, "dx");
  expect_close<A>(p.dw.read(s), weight_gradient(false), "dw of queries");
  expect_close<A>(p.d_keys.read(s), weight_gradient(true), "dw of keys");
}

template <class T>
void check_heads(std::int64_t R, std::int64_t n, std::int64_t D) {
  using N = Tracked<acc_t<T>>;
  HeadProblem<T> p(R, n, D);
  Stream s(3);
  p.run(s);
  check_heads(p, s, p.dy.read(s));
  const Values x = p.x.read(s);
  const auto of_queries = lifted<N>(p.w.read(s)), of_keys = lifted<N>(p.key_w.read(s));
  std::vector<N> y;
  for (std::int64_t q = 0; q < R * n; ++q) {
    const auto& w = q % n < p.queries ? of_queries : of_keys;
    const auto head = forward_row<N>(Kind::rms, lifted<N>(row_of(x, q, D)), w, {}, p.epsilon);
    y.insert(y.end(), head.y.begin(), head.y.end());
  }
  expect_close<T>(p.y.read(s), y, "y");
}

TEST(HeadNorm, is_rmsnorm_of_each_head) {
  for (const auto& [R, n, D] : {std::array<std::int64_t, 3>{1, 1, 1}, std::array<std::int64_t, 3>{5, 3, 16},
                                std::array<std::int64_t, 3>{200, 9, 64}, std::array<std::int64_t, 3>{130, 2, 17},
                                std::array<std::int64_t, 3>{40, 3, 320}}) {
    SCOPED_TRACE(::testing::Message() << R << " x " << n << " x " << D);
    check_heads<double>(R, n, D);
    check_heads<float>(R, n, D);
    check_heads<bf16>(R, n, D);
  }
}

// To the bit what the norm and then the rotation give, of 2h of D entries; backward from a gradient that is turned
// back.
template <class T>
void check_rotated_heads(std::int64_t R, std::int64_t n, std::int64_t D, std::int64_t h) {
  using A = acc_t<T>;
  HeadProblem<T> p(R, n, D);
  Field<A> cosine(R + 3, h, normal_values((R + 3) * h, 5)), sine(R + 3, h, normal_values((R + 3) * h, 6));
  Field<std::int32_t> positions(1, R);
  Values at;
  for (std::int64_t r = 0; r < R; ++r) at.push_back(static_cast<double>((5 * r + 2) % (R + 3)));
  positions.write(at);
  Stream s(2);
  p.run(s);
  const Values plain = p.y.read(s), scales = p.rstd.read(s);
  rotary<T>(s, p.y.heads(n), positions.vector(), cosine.view(), sine.view(), false, RotaryPairs::halves,
            RotaryPart::first);
  const Values expected = p.y.read(s);
  EXPECT_FALSE(same_bits(plain, expected));
  p.dw.write(Values(D));
  p.d_keys.write(Values(D));
  p.run(s, positions.vector(), cosine.view(), sine.view());
  EXPECT_TRUE(same_bits(p.y.read(s), expected));
  EXPECT_TRUE(same_bits(p.rstd.read(s), scales));
  rotary<T>(s, p.dy.heads(n), positions.vector(), cosine.view(), sine.view(), true, RotaryPairs::halves,
            RotaryPart::first);
  check_heads(p, s, p.dy.read(s));
}

TEST(HeadNorm, rotates_what_it_has_normalised) {
  for (const auto& [R, n, D, h] :
       {std::array<std::int64_t, 4>{1, 1, 2, 1}, std::array<std::int64_t, 4>{7, 3, 16, 8},
        std::array<std::int64_t, 4>{33, 5, 128, 64}, std::array<std::int64_t, 4>{9, 3, 11, 2},
        std::array<std::int64_t, 4>{5, 4, 96, 16}}) {
    SCOPED_TRACE(::testing::Message() << R << " x " << n << " x " << D << ", " << h << " angles");
    check_rotated_heads<double>(R, n, D, h);
    check_rotated_heads<float>(R, n, D, h);
    check_rotated_heads<bf16>(R, n, D, h);
  }
}

TEST(HeadNorm, any_number_of_threads_gives_the_same_bits) {
  expect_same_on_any_threads([&](Stream& s) {
    HeadProblem<float> p(200, 3, 64);
    p.run(s);
    s.synchronize();
    Values all = p.y.read(s);
    append(all, p.dx.read(s));
    append(all, p.dw.read(s));
    return all;
  });
}

}  // namespace
}  // namespace forge
