#include <algorithm>
#include <limits>
#include <type_traits>

#include "cross_entropy_problem.hpp"

namespace forge {
namespace {

using namespace reference;

template <class T>
void check(std::int64_t R, std::int64_t V, double zc, double spread) {
  Problem<T> p(R, V, zc, spread);
  check(p);
}

TEST(CrossEntropy, matches_its_formula) {
  for (const std::int64_t V : {1, 3, 17, 64, 127, 1000})
    for (const std::int64_t R : {1, 6})
      for (const double zc : {0.0, 1e-2})
        for (const double spread : {4.0, 1000.0}) {
          SCOPED_TRACE(::testing::Message() << R << " x " << V << ", z " << zc << ", spread " << spread);
          check<double>(R, V, zc, spread);
          check<float>(R, V, zc, spread);
          check<bf16>(R, V, zc, spread);
        }
}

// d_logits is the gradient of scale · Σ (loss + z_coefficient · z).
TEST(CrossEntropy, backward_is_the_adjoint) {
  for (const std::int64_t V : {1, 3, 127})
    for (const double zc : {0.0, 1e-2}) {
      Problem<double> p(11, V, zc);
      Stream s(2);
      p.run(s, p.d.view());
      const Values x = p.logits.read(s), v = normal_values(p.R * V, 9), labels = p.labels.read(s), d = p.d.read(s);
      double directional = 0, magnitude = norm(d) * norm(v);
      for (std::int64_t r = 0; r < p.R; ++r) {
        if (labels[r] < 0) continue;
        std::vector<Dual> row;
        for (std::int64_t j = 0; j < V; ++j) row.emplace_back(x[r * V + j], v[r * V + j]);
        const auto result = reference_row<Dual>(row, static_cast<std::int64_t>(labels[r]), p.scale, zc);
        const double term = p.scale * (result.loss.d + zc * result.z.d);
        directional += term;
        magnitude += std::abs(term);
      }
      expect_adjoint(directional, dot(d, v), magnitude + p.scale, p.R * V);
    }
}

TEST(CrossEntropy, nan_and_infinity_reach_the_loss) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::int64_t where : {0, 1, 62, 63, 64, 126})
    for (const double bad : {std::nan(""), inf}) {
      Problem<float> p(3, 127, 0);
      Values x = p.logits.read();
      x[static_cast<std::size_t>(127 + where)] = bad;
      p.logits.write(x);
      Stream s;
      p.run(s, p.d.view());
      const Values loss = p.loss.read(s);
      EXPECT_TRUE(std::isfinite(loss[0]) && std::isfinite(loss[2]));
      EXPECT_TRUE(std::isnan(loss[1])) << bad << " at " << where;
    }
}

// A vocabulary that is padded for the matrix product, and masked logits.
TEST(CrossEntropy, minus_infinity_has_no_probability) {
  Problem<float> p(1, 4, 0);
  p.logits.write({1, -std::numeric_limits<double>::infinity(), 2, 0.5});
  Stream s;
  p.run(s, p.d.view());
  EXPECT_TRUE(std::isfinite(p.loss.read(s)[0]));
  EXPECT_EQ(p.d.read(s)[1], 0);
}

// ---- some columns of the vocabulary on each rank

// The columns of each rank's matrix: `width` of them, of which those below V are the vocabulary and the rest padding,
// filled with what must not be read.
template <class T>
struct Parts {
  using A = acc_t<T>;
  const Problem<T>& whole;
  std::int64_t width;
  std::vector<Field<A>> logits;
  std::vector<Field<T>> d;
  Field<A> statistics, loss, z;

  Parts(const Problem<T>& p, std::int64_t ranks, std::int64_t w)
      : whole(p), width(w), statistics(ranks * p.R, 3), loss(1, p.R), z(1, p.R) {
    const Values x = p.logits.read();
    for (std::int64_t i = 0; i < ranks; ++i) {
      Values part;
      for (std::int64_t r = 0; r < p.R; ++r)
        for (std::int64_t j = i * w; j < (i + 1) * w; ++j)
          part.push_back(j < p.V ? x[static_cast<std::size_t>(r * p.V + j)] : std::nan(""));
      logits.emplace_back(p.R, w, part, i);
      d.emplace_back(p.R, w, Values(part.size(), 99.0), 2 * i + 1);
    }
  }
  int ranks() const { return static_cast<int>(logits.size()); }
  std::int64_t first(int i) const { return i * width; }
  std::int64_t columns(int i) const { return std::clamp<std::int64_t>(whole.V - first(i), 0, width); }

  void run_statistics(Stream& s) {
    for (int i = 0; i < ranks(); ++i)
      cross_entropy_statistics<T>(s, logits[i].view(), columns(i), whole.labels.vector(), first(i),
                                  statistics.view().slice(i * whole.R, (i + 1) * whole.R));
  }
  void run_gradient(Stream& s, int i, View<T, 2> to) {
    cross_entropy_from_statistics<T>(s, logits[i].view(), columns(i), whole.labels.vector(), first(i),
                                     statistics.view(), ranks(), whole.scale, whole.z_coefficient, loss.vector(),
                                     z.vector(), to);
  }
};

// Over the tracked statistics as the kernels combine them: Σ s_i e^(m_i − m).
template <class N>
Result<N> reference_row_of_parts(const std::vector<N>& x, std::int64_t label, std::int64_t width, double scale,
                                 double z_coefficient) {
  const auto n = static_cast<std::int64_t>(x.size());
  N largest = x[0];
  for (const N& candidate : x)
    if (value(candidate) > value(largest)) largest = candidate;
  N total(0.0);
  for (std::int64_t begin = 0; begin < n; begin += width) {
    const std::int64_t count = std::min(width, n - begin);
    N peak = x[begin];
    for (std::int64_t j = begin; j < begin + count; ++j)
      if (value(x[j]) > value(peak)) peak = x[j];
    total = total + sum<N>(count, [&](std::int64_t j) { return exp(x[begin + j] - peak); }) * exp(peak - largest);
  }
  return row_of_sum(x, label, largest, total, scale, z_coefficient);
}

template <class T>
void check_parts(std::int64_t V, std::int64_t ranks, std::int64_t width, double zc, double spread) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  Problem<T> p(6, V, zc, spread);
  Parts<T> parts(p, ranks, width);
  Stream s(2);
  const Values x = p.logits.read(s), labels = p.labels.read(s);
  std::vector<N> loss, z;
  std::vector<std::vector<N>> d(static_cast<std::size_t>(ranks));
  for (std::int64_t r = 0; r < p.R; ++r) {
    Result<N> row{N(0.0), N(0.0), std::vector<N>(static_cast<std::size_t>(V), N(0.0))};
    if (labels[r] >= 0)
      row = reference_row_of_parts<N>(std::vector<N>(x.begin() + r * V, x.begin() + (r + 1) * V),
                                      static_cast<std::int64_t>(labels[r]), width, p.scale, zc);
    loss.push_back(row.loss);
    z.push_back(row.z);
    for (std::int64_t j = 0; j < ranks * width; ++j)
      d[static_cast<std::size_t>(j / width)].push_back(j < V ? row.d_logits[static_cast<std::size_t>(j)] : N(0.0));
  }
  parts.run_statistics(s);
  Values first_loss;
  for (int i = 0; i < parts.ranks(); ++i) {
    SCOPED_TRACE(::testing::Message() << "rank " << i);
    parts.run_gradient(s, i, parts.d[i].view());
    expect_close<A>(parts.loss.read(s), loss, "loss");
    expect_close<A>(parts.z.read(s), z, "z");
    expect_close<T>(parts.d[i].read(s), d[static_cast<std::size_t>(i)], "d_logits");
    if (i == 0) first_loss = parts.loss.read(s);
    parts.run_gradient(s, i, {});
    EXPECT_TRUE(same_bits(first_loss, parts.loss.read(s))) << "the loss is the same on every rank";
    if constexpr (std::is_same_v<T, A>) {
      parts.run_gradient(s, i, parts.logits[i].view());
      EXPECT_TRUE(same_bits(parts.logits[i].read(s), parts.d[i].read(s))) << "d_logits over logits";
    }
  }
}

TEST(ParallelCrossEntropy, is_that_of_the_whole_row) {
  struct Cut {
    std::int64_t V, ranks, width;
  };
  // Even, padded, a rank with one column, ranks with none, one rank.
  for (const Cut c : {Cut{64, 4, 16}, Cut{127, 2, 64}, Cut{17, 4, 8}, Cut{5, 4, 4}, Cut{1, 2, 1}, Cut{1000, 3, 344},
                      Cut{127, 1, 127}, Cut{127, 1, 128}})
    for (const double zc : {0.0, 1e-2})
      for (const double spread : {4.0, 1000.0}) {
        SCOPED_TRACE(::testing::Message()
                     << c.V << " in " << c.ranks << " x " << c.width << ", z " << zc << ", spread " << spread);
        check_parts<double>(c.V, c.ranks, c.width, zc, spread);
        check_parts<float>(c.V, c.ranks, c.width, zc, spread);
        check_parts<bf16>(c.V, c.ranks, c.width, zc, spread);
      }
}

// The loss of a probable label is small; as the difference of two numbers near 1000 it would be off by 3e-5.
TEST(ParallelCrossEntropy, small_losses_do_not_cancel) {
  Problem<float> p(1, 6, 0);
  p.labels.write({4});
  p.logits.write({1010, 1009, 1010, 1008, 1016, 1010});
  Parts<float> parts(p, 3, 2);
  Stream s;
  parts.run_statistics(s);
  parts.run_gradient(s, 0, {});
  const double want = std::log1p(3 * std::exp(-6.0) + std::exp(-7.0) + std::exp(-8.0));
  EXPECT_NEAR(parts.loss.read(s)[0], want, 8 * roundoff<float>);  // log(1 + x): the rounding of 1
}

// On every rank, wherever it stands; other rows don't notice.
TEST(ParallelCrossEntropy, nan_and_infinity_reach_every_rank) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::int64_t where : {0, 1, 62, 63, 64, 126})
    for (const double bad : {std::nan(""), inf}) {
      Problem<float> p(3, 127, 0);
      Values x = p.logits.read();
      x[static_cast<std::size_t>(127 + where)] = bad;
      p.logits.write(x);
      Parts<float> parts(p, 3, 50);
      Stream s;
      parts.run_statistics(s);
      for (int i = 0; i < 3; ++i) {
        parts.run_gradient(s, i, parts.d[i].view());
        const Values loss = parts.loss.read(s), d = parts.d[i].read(s);
        EXPECT_TRUE(std::isfinite(loss[0]) && std::isfinite(loss[2]));
        EXPECT_TRUE(std::isnan(loss[1])) << bad << " at " << where << ", rank " << i;
        for (std::int64_t j = 0; j < 150; ++j)
          EXPECT_EQ(std::isnan(d[static_cast<std::size_t>(j)]), j >= 50 && j - 50 < parts.columns(i));
      }
    }
}

// A rank whose columns are all −Inf adds nothing; where all ranks' are, the row is NaN, as on one rank.
TEST(ParallelCrossEntropy, minus_infinity_has_no_probability) {
  const double none = -std::numeric_limits<double>::infinity();
  Problem<float> p(1, 4, 0);
  Stream s;
  for (const bool all : {false, true}) {
    p.logits.write({all ? none : 1, all ? none : 2, none, none});
    Parts<float> parts(p, 2, 2);
    parts.run_statistics(s);
    parts.run_gradient(s, 1, parts.d[1].view());
    EXPECT_EQ(std::isnan(parts.loss.read(s)[0]), all);
    if (!all) {
      EXPECT_EQ(parts.d[1].read(s), (Values{0, 0}));
    }
  }
}

TEST(ParallelCrossEntropy, any_number_of_threads_gives_the_same_bits) {
  expect_same_on_any_threads([&](Stream& s) {
    Problem<bf16> p(23, 333, 1e-3);
    Parts<bf16> parts(p, 2, 170);
    parts.run_statistics(s);
    parts.run_gradient(s, 1, parts.d[1].view());
    Values all = parts.statistics.read(s);
    append(all, parts.loss.read(s));
    append(all, parts.d[1].read(s));
    return all;
  });
}

TEST(CrossEntropy, any_number_of_threads_gives_the_same_bits) {
  expect_same_on_any_threads([&](Stream& s) {
    Problem<bf16> p(23, 333, 1e-3);
    p.run(s, p.d.view());
    s.synchronize();
    Values all = p.loss.read(s);
    append(all, p.z.read(s));
    append(all, p.d.read(s));
    return all;
  });
}

}  // namespace
}  // namespace forge
