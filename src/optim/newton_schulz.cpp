#include "optim/newton_schulz.hpp"

namespace forge {

namespace {

constexpr double factor_a = 3.4445, factor_b = -4.775, factor_c = 2.0315;

template <class T>
View<T, 2> rows_of(View<T, 3> x) {
  return View<T, 2>(x.data, {{x.extent(0) * x.extent(1), x.extent(2)}});
}

}  // namespace

template <class T>
void NewtonSchulz<T>::product(Stream& stream, double alpha, View<T, 3> a, Transpose tb, View<T, 3> b, double beta,
                              View<T, 3> c) {
  const std::int64_t B = a.extent(0), m = a.extent(1), k = a.extent(2), n = c.extent(2);
  const View<const T, 2> rows = rows_of(a);
  if (B == 1) {
    if (tape_) tape_->product({m, n, k, dtype_of<T>, dtype_of<T>});
    return gemm_(stream, Transpose::no, tb, alpha, rows, View<const T, 2>(rows_of(b)), beta, rows_of(c));
  }
  if (tape_) tape_->experts({false, B, B * m, n, k, dtype_of<T>, dtype_of<T>});
  for (std::int64_t g = 0; g <= B; ++g) offsets_[to_size(g)] = g * m;
  gemm_.grouped_rows(stream, {offsets_.data(), to_size(B) + 1}, tb, alpha, rows, View<const T, 3>(b), beta, rows_of(c));
}

template <class T>
void NewtonSchulz<T>::square(Stream& stream, View<T, 3> a, View<T, 3> c) {
  const std::int64_t B = a.extent(0), m = a.extent(1), n = a.extent(2);
  const View<const T, 2> rows = rows_of(a);
  if (B == 1) {
    if (tape_) tape_->product({n, n, m, dtype_of<T>, dtype_of<T>});
    return gemm_(stream, Transpose::yes, Transpose::no, 1, rows, rows, 0, rows_of(c));
  }
  if (tape_) tape_->experts({true, B, B * m, n, n, dtype_of<T>, dtype_of<T>});
  for (std::int64_t g = 0; g <= B; ++g) offsets_[to_size(g)] = g * m;
  gemm_.grouped_sums(stream, {offsets_.data(), to_size(B) + 1}, 1, rows, rows, 0, c);
}

template <class T>
View<T, 1> NewtonSchulz<T>::operator()(Stream& stream, const MatrixBuffers<T>& buffers, std::int64_t B, std::int64_t m,
                                       std::int64_t n) {
  const bool tall = m > n;
  const std::int64_t k = tall ? n : m, elements = B * m * n, squares = B * k * k;
  const View<T, 3> gram(buffers.gram.data, {{B, k, k}}), polynomial(buffers.polynomial.data, {{B, k, k}});
  View<T, 3> x(buffers.x.data, {{B, m, n}}), next(buffers.y.data, {{B, m, n}});
  normalise_matrices(stream, x, buffers.row_squares, buffers.norms);
  for (int step = 0; step < newton_schulz_steps; ++step) {
    if (tall)
      square(stream, x, gram);
    else
      product(stream, 1, x, Transpose::yes, x, 0, gram);
    copy_on_device(stream, polynomial.data, gram.data, to_size(squares) * sizeof(T));
    product(stream, factor_c, gram, Transpose::no, gram, factor_b, polynomial);
    copy_on_device(stream, next.data, x.data, to_size(elements) * sizeof(T));
    if (tall)
      product(stream, 1, x, Transpose::no, polynomial, factor_a, next);
    else
      product(stream, 1, polynomial, Transpose::no, x, factor_a, next);
    std::swap(x, next);
  }
  return View<T, 1>(x.data, {{elements}});
}

FORGE_INSTANTIATE_CLASS(NewtonSchulz);

}  // namespace forge
