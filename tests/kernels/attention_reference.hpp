#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_mask.hpp"

// Attention by its formula, in double, with all scores of a row in memory. Beside each result stands its magnitude: the
// same sum with every term's absolute value; rounding errors are proportional to it.

namespace forge::reference {

// A dense array (rows, heads, columns).
struct Heads {
  std::int64_t rows, heads, columns;
  std::vector<double> values;

  Heads(std::int64_t r, std::int64_t h, std::int64_t c)
      : rows(r), heads(h), columns(c), values(static_cast<std::size_t>(r * h * c)) {}
  double* at(std::int64_t r, std::int64_t h) { return values.data() + (r * heads + h) * columns; }
  const double* at(std::int64_t r, std::int64_t h) const { return values.data() + (r * heads + h) * columns; }
};

inline Heads like(const Heads& x) {
  return Heads(x.rows, x.heads, x.columns);
}

struct Inputs {
  AttentionShape shape;
  AttentionMask mask;  // of host memory
  Heads q, k, v;

  std::int64_t group() const { return q.heads / k.heads; }
  std::int64_t first_key(std::int64_t row_q) const { return row_q / shape.query_rows * shape.key_rows; }
  bool visible(std::int64_t i, std::int64_t j) const {
    const bool documents = !mask.document_q.empty();
    return attention_visible(mask.position_q[i], mask.position_k[j], documents ? mask.document_q[i] : 0,
                             documents ? mask.document_k[j] : 0, mask.window);
  }
  // The factor of a probability with dropout.
  double kept(std::int64_t i, std::int64_t h, std::int64_t j) const {
    if (shape.dropout == 0) return 1;
    const std::uint64_t key = attention_dropout_key(shape.dropout_key, shape.first_head + h);
    const bool stays = attention_kept(key, shape.samples[i], mask.position_q[i], mask.position_k[j], shape.dropout);
    return stays ? 1 / (1 - shape.dropout) : 0;
  }
};

struct Forward {
  Heads o, lse, o_magnitude;
  double score_magnitude = 0;  // largest scale · Σ |q| |k|
  Heads peak{0, 0, 0};         // (rows, heads) largest score before its cap
};

inline double dot(const double* x, const double* y, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}
inline double capped(const AttentionShape& shape, double score) {
  return shape.soft_cap > 0 ? shape.soft_cap * std::tanh(score / shape.soft_cap) : score;
}
// d capped / d score.
inline double slope(const AttentionShape& shape, double score) {
  const double share = shape.soft_cap > 0 ? std::tanh(score / shape.soft_cap) : 0;
  return 1 - share * share;
}
inline double dot_of_magnitudes(const double* x, const double* y, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::abs(x[i] * y[i]);
  return sum;
}

// e^(score − lse) of row (i, h) for the keys of its sequence, with the log-sum-exp of these keys or a given one.
inline std::vector<double> probabilities(const Inputs& in, std::int64_t i, std::int64_t h, double* lse, bool given) {
  const std::int64_t first = in.first_key(i), n = in.shape.key_rows, D = in.q.columns;
  constexpr double none = -std::numeric_limits<double>::infinity();
  std::vector<double> p(static_cast<std::size_t>(n), none);
  double largest = none;
  for (std::int64_t j = 0; j < n; ++j) {
    if (!in.visible(i, first + j)) continue;
    const double score = capped(in.shape, in.shape.scale * dot(in.q.at(i, h), in.k.at(first + j, h / in.group()), D));
    p[static_cast<std::size_t>(j)] = score;
    largest = std::max(largest, score);
  }
  if (!given) {
    double sum = 0;
    for (const double s : p) sum += largest == none ? 0 : std::exp(s - largest);
    *lse = largest == none ? none : largest + std::log(sum);
  }
  for (double& s : p) s = s == none ? 0 : std::exp(s - *lse);
  return p;
}

inline Forward forward(const Inputs& in) {
  const std::int64_t Dv = in.v.columns, D = in.q.columns;
  Forward f{Heads(in.q.rows, in.q.heads, Dv), Heads(in.q.rows, in.q.heads, 1), Heads(in.q.rows, in.q.heads, Dv)};
  f.peak = Heads(in.q.rows, in.q.heads, 1);
  for (std::int64_t i = 0; i < in.q.rows; ++i) {
    for (std::int64_t h = 0; h < in.q.heads; ++h) {
      const std::vector<double> p = probabilities(in, i, h, f.lse.at(i, h), false);
      double& peak = *f.peak.at(i, h) = -std::numeric_limits<double>::infinity();
      for (std::int64_t j = 0; j < in.shape.key_rows; ++j) {
        const std::int64_t key = in.first_key(i) + j;
        const double weight = p[static_cast<std::size_t>(j)] * in.kept(i, h, key);
        const double* v = in.v.at(key, h / in.group());
        for (std::int64_t d = 0; d < Dv; ++d) f.o.at(i, h)[d] += weight * v[d];
        for (std::int64_t d = 0; d < Dv; ++d) f.o_magnitude.at(i, h)[d] += weight * std::abs(v[d]);
        if (in.visible(i, key))
          peak = std::max(peak, in.shape.scale * dot(in.q.at(i, h), in.k.at(key, h / in.group()), D));
        if (in.visible(i, key))
          f.score_magnitude = std::max(
              f.score_magnitude, in.shape.scale * dot_of_magnitudes(in.q.at(i, h), in.k.at(key, h / in.group()), D));
      }
    }
  }
  return f;
}

struct Gradients {
  Heads q, k, v;
};
struct Backward {
  Gradients value, magnitude;
};

// From the lse and o of the whole row, which may belong to more keys than these.
//   d_v = Σ p d_o;  d_s = p (d_o · v − d_o · o) · slope of the cap;  d_q = scale Σ d_s k;  d_k = scale Σ d_s q
inline Backward backward(const Inputs& in, const Heads& d_o, const Heads& o, const Heads& lse) {
  const std::int64_t D = in.q.columns, Dv = in.v.columns;
  const double scale = in.shape.scale;
  Backward b{{like(in.q), like(in.k), like(in.v)}, {like(in.q), like(in.k), like(in.v)}};
  for (std::int64_t i = 0; i < in.q.rows; ++i) {
    for (std::int64_t h = 0; h < in.q.heads; ++h) {
      double whole = *lse.at(i, h);
      const std::vector<double> p = probabilities(in, i, h, &whole, true);
      const double* u = d_o.at(i, h);
      const double* q = in.q.at(i, h);
      const double delta = dot(u, o.at(i, h), Dv), delta_magnitude = dot_of_magnitudes(u, o.at(i, h), Dv);
      for (std::int64_t j = 0; j < in.shape.key_rows; ++j) {
        const std::int64_t key = in.first_key(i) + j, kv = h / in.group();
        const double weight = p[static_cast<std::size_t>(j)], kept = in.kept(i, h, key);
        const double* k = in.k.at(key, kv);
        const double through = scale * slope(in.shape, scale * dot(q, k, D));
        const double d_s = through * weight * (kept * dot(u, in.v.at(key, kv), Dv) - delta);
        const double m_s = through * weight * (kept * dot_of_magnitudes(u, in.v.at(key, kv), Dv) + delta_magnitude);
        for (std::int64_t d = 0; d < D; ++d) {
          b.value.q.at(i, h)[d] += d_s * k[d];
          b.magnitude.q.at(i, h)[d] += m_s * std::abs(k[d]);
          b.value.k.at(key, kv)[d] += d_s * q[d];
          b.magnitude.k.at(key, kv)[d] += m_s * std::abs(q[d]);
        }
        for (std::int64_t d = 0; d < Dv; ++d) {
          b.value.v.at(key, kv)[d] += weight * kept * u[d];
          b.magnitude.v.at(key, kv)[d] += weight * kept * std::abs(u[d]);
        }
      }
    }
  }
  return b;
}

// The derivative of o in the direction (q, k, v) of `by`: Σ p (s' − Σ p s') v + Σ p v', s' = scale (q' · k + q · k').
inline Heads tangent(const Inputs& in, const Gradients& by) {
  const std::int64_t D = in.q.columns, Dv = in.v.columns;
  Heads o(in.q.rows, in.q.heads, Dv);
  for (std::int64_t i = 0; i < in.q.rows; ++i) {
    for (std::int64_t h = 0; h < in.q.heads; ++h) {
      double lse = 0, mean = 0;
      const std::vector<double> p = probabilities(in, i, h, &lse, false);
      std::vector<double> s(p.size());
      for (std::size_t j = 0; j < p.size(); ++j) {
        const std::int64_t key = in.first_key(i) + static_cast<std::int64_t>(j), kv = h / in.group();
        s[j] = in.shape.scale * slope(in.shape, in.shape.scale * dot(in.q.at(i, h), in.k.at(key, kv), D)) *
               (dot(by.q.at(i, h), in.k.at(key, kv), D) + dot(in.q.at(i, h), by.k.at(key, kv), D));
        mean += p[j] * s[j];
      }
      for (std::size_t j = 0; j < p.size(); ++j) {
        const std::int64_t key = in.first_key(i) + static_cast<std::int64_t>(j), kv = h / in.group();
        const double kept = p[j] * in.kept(i, h, key);
        for (std::int64_t d = 0; d < Dv; ++d)
          o.at(i, h)[d] += kept * ((s[j] - mean) * in.v.at(key, kv)[d] + by.v.at(key, kv)[d]);
      }
    }
  }
  return o;
}

}  // namespace forge::reference
