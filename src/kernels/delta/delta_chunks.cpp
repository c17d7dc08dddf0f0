#include "device/parallel.hpp"
#include "kernels/delta/delta_places.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

// Parts of c, λ and ε: one thread walks through a chunk of a head.
template <class A>
void delta_sums(Stream& stream, const DeltaShape& shape, const Documents& documents, bool kept,
                const DeltaTokens<A>& of, View<A, 1> whole) {
  note_rows(stream, "delta_sums", bytes_in(of.g), bytes_in(of.sum, of.begin, of.end));
  parallel_for(stream, shape.groups(), [=] FORGE_LAMBDA(std::int64_t group) {
    const std::int64_t C = shape.chunk(), first = group * C;
    const DeltaPlace place(shape, first);
    const DeltaDocuments same(documents, shape, place.sequence);
    const std::int64_t behind = shape.tokens - place.token, count = behind < C ? behind : C, last = count - 1;
    A sum = 0;
    for (std::int64_t i = 0; i < C; ++i) {
      sum += of.g[first + i];
      of.sum[first + i] = sum;
    }
    const A all = of.sum[first + last];
    for (std::int64_t i = 0; i < C; ++i) {
      const std::int64_t t = place.token + i;
      const bool reaches_back = i < count && (place.chunk > 0 ? same.same(place.token - 1, t) : kept);
      const bool reaches_end = i < count && same.same(t, place.token + last);
      of.begin[first + i] = reaches_back ? math::exp(of.sum[first + i]) : A(0);
      of.end[first + i] = reaches_end ? math::exp(all - of.sum[first + i]) : A(0);
    }
    whole[group] = of.begin[first + last];
  });
}

namespace {

// Γ_ij of two tokens of a chunk, j <= i; 0 of two documents, and behind the sequence's end.
template <class A>
FORGE_INLINE A decay_between(const DeltaTokens<A>& of, const DeltaDocuments& same, const DeltaShape& shape,
                             const DeltaPlace& i, std::int64_t row_i, std::int64_t row_j) {
  if (!i.there(shape) || !same.same(i.token, i.token - (row_i - row_j))) return 0;
  return math::exp(of.sum[row_i] - of.sum[row_j]);
}

}  // namespace

template <class A>
void delta_masks(Stream& stream, const DeltaShape& shape, const Documents& documents, const DeltaTokens<A>& of,
                 View<const A, 2> k, View<A, 2> x, View<A, 2> p, View<A, 2> end_k, View<A, 2> beta_k) {
  note_rows(stream, "delta_masks", bytes_in(k, x, p), bytes_in(x, p, end_k, beta_k));
  const std::int64_t C = shape.chunk(), n = k.columns();
  parallel_rows(stream, k.rows(), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    const DeltaPlace place(shape, row);
    const DeltaDocuments same(documents, shape, place.sequence);
    const std::int64_t first = quotient(row, C) * C, i = row - first;
    A *const keys = x.row(row), *const queries = p.row(row);
    team.each(C, [=](std::int64_t j) {
      const A decay = j <= i ? decay_between(of, same, shape, place, row, first + j) : A(0);
      keys[j] = j < i ? keys[j] * decay : A(0);
      queries[j] *= decay;
    });
    const A *const key = k.row(row), to_end = of.end[row], beta = of.beta[row] * of.begin[row];
    A *const left = end_k.row(row), *const right = beta_k.row(row);
    team.each(n, [=](std::int64_t c) {
      left[c] = to_end * key[c];
      right[c] = beta * key[c];
    });
  });
}

// Row after row; each worker has columns of its own.
template <class A>
void delta_solve(Stream& stream, const DeltaShape& shape, View<const A, 2> x, View<const A, 1> beta, View<A, 2> y,
                 bool transposed) {
  note_rows(stream, "delta_solve", bytes_in(x, y), bytes_in(y));
  const std::int64_t C = shape.chunk(), n = y.columns();
  parallel_rows(stream, shape.groups(), [=] FORGE_LAMBDA(std::int64_t group, Team team) {
    const std::int64_t first = group * C;
    for (std::int64_t step = 1; step < C; ++step) {
      const std::int64_t i = transposed ? C - 1 - step : step;
      A* const to = y.row(first + i);
      team.each(n, [=](std::int64_t c) {
        A sum = 0;
        if (transposed)
          for (std::int64_t j = i + 1; j < C; ++j) sum += beta[first + j] * x.row(first + j)[i] * y.row(first + j)[c];
        else
          for (std::int64_t j = 0; j < i; ++j) sum += beta[first + i] * x.row(first + i)[j] * y.row(first + j)[c];
        to[c] -= sum;
      });
    }
  });
}

template <class A>
void delta_scale_rows(Stream& stream, View<const A, 1> factors, std::int64_t rows_of_factor, View<A, 2> y) {
  note_rows(stream, "delta_scale_rows", bytes_in(y), bytes_in(y));
  const std::int64_t n = y.columns();
  parallel_rows(stream, y.rows(), row_width<A>(n), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    const A factor = factors[quotient(row, rows_of_factor)];
    A* const to = y.row(row);
    team.each(n, [=](std::int64_t c) { to[c] *= factor; });
  });
}

template <class A>
void delta_state_slope(Stream& stream, const DeltaShape& shape, View<const A, 1> whole, View<const A, 2> s,
                       View<const A, 2> ds, View<A, 1> to) {
  note_rows(stream, "delta_state_slope", bytes_in(s, ds), 0);
  const std::int64_t n = shape.key_dim * shape.value_dim;
  parallel_rows(stream, shape.heads(), [=] FORGE_LAMBDA(std::int64_t head, Team team) {
    const A *const a = s.data + head * n, *const b = ds.data + head * n;
    const A sum = team.template sum<A>(n, [=](std::int64_t j) { return a[j] * b[j]; });
    if (team.leads()) to[head] = whole[head] * sum;
  });
}

// With E_ij = d(βX)_ij β_i X_ij + dP_ij P_ij: β_i gets Σ_j d(βX)_ij X_ij, c_i gets Σ_j E_ij − Σ_j E_ji; then the
// gradients of k kᵀ are d(βX)_ij β_i Γ_ij, of q kᵀ dP_ij Γ_ij.
template <class A>
void delta_masks_backward(Stream& stream, const DeltaShape& shape, const Documents& documents, const DeltaTokens<A>& of,
                          View<const A, 2> x, View<const A, 2> p, View<A, 2> dx, View<A, 2> dp,
                          const DeltaSlopes<A>& slopes) {
  note_rows(stream, "delta_masks_backward", 3 * bytes_in(dx, dp) + 2 * bytes_in(x, p), bytes_in(dx, dp));
  const std::int64_t C = shape.chunk();
  parallel_rows(stream, x.rows(), row_width<A>(C), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    const std::int64_t first = quotient(row, C) * C, m = row - first;
    const auto of_pair = [=](std::int64_t i, std::int64_t j) {  // i >= j
      const A keys = i > j ? dx.row(first + i)[j] * of.beta[first + i] * x.row(first + i)[j] : A(0);
      return keys + dp.row(first + i)[j] * p.row(first + i)[j];
    };
    const A beta =
        team.template sum<A>(C, [=](std::int64_t j) { return j < m ? dx.row(row)[j] * x.row(row)[j] : A(0); });
    const A own = team.template sum<A>(C, [=](std::int64_t j) { return j <= m ? of_pair(m, j) : A(0); });
    const A later = team.template sum<A>(C, [=](std::int64_t i) { return i >= m ? of_pair(i, m) : A(0); });
    if (!team.leads()) return;
    slopes.beta[row] = beta;
    slopes.sum[row] = own - later;
  });
  parallel_rows(stream, x.rows(), row_width<A>(C), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    const DeltaPlace place(shape, row);
    const DeltaDocuments same(documents, shape, place.sequence);
    const std::int64_t first = quotient(row, C) * C, i = row - first;
    A *const keys = dx.row(row), *const queries = dp.row(row);
    const A beta = of.beta[row];
    team.each(C, [=](std::int64_t j) {
      const A decay = j <= i ? decay_between(of, same, shape, place, row, first + j) : A(0);
      keys[j] = j < i ? keys[j] * beta * decay : A(0);
      queries[j] *= decay;
    });
  });
}

template <class A>
void delta_sums_backward(Stream& stream, const DeltaShape& shape, const DeltaSlopes<A>& slopes) {
  note_rows(stream, "delta_sums_backward", bytes_in(slopes.sum, slopes.end), bytes_in(slopes.sum));
  parallel_for(stream, shape.groups(), [=] FORGE_LAMBDA(std::int64_t group) {
    const std::int64_t C = shape.chunk(), first = group * C;
    A sum = slopes.whole[group];
    for (std::int64_t i = 0; i < C; ++i) sum += slopes.end[first + i];
    for (std::int64_t i = C - 1; i >= 0; --i) {
      sum += slopes.sum[first + i];
      slopes.sum[first + i] = sum;
    }
  });
}

FORGE_INSTANTIATE_ACC_FUNCTION(delta_sums);
FORGE_INSTANTIATE_ACC_FUNCTION(delta_masks);
FORGE_INSTANTIATE_ACC_FUNCTION(delta_solve);
FORGE_INSTANTIATE_ACC_FUNCTION(delta_scale_rows);
FORGE_INSTANTIATE_ACC_FUNCTION(delta_state_slope);
FORGE_INSTANTIATE_ACC_FUNCTION(delta_masks_backward);
FORGE_INSTANTIATE_ACC_FUNCTION(delta_sums_backward);

}  // namespace forge
