#include <cmath>

#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/math.hpp"
#include "optim/rotation.hpp"
#include "optim/rule.hpp"
#include "optim/update_elements.hpp"

namespace forge {

namespace {

// kept ← kept + fraction (value − kept)
template <class A>
void blend(Stream& stream, const UpdateStep& step, double fraction, const A* value, View<A, 1> kept) {
  const View<const StepScalars, 1> scalars = step.scalars;
  const A factor = A(fraction);
  A* const to = kept.data;
  parallel_for(stream, kept.size(), [=] FORGE_LAMBDA(std::int64_t i) {
    if (scalars[0].finite != 0) to[i] += factor * (value[i] - to[i]);
  });
}

// kept ← value
template <class A>
void replace(Stream& stream, const UpdateStep& step, const A* value, View<A, 1> kept) {
  const View<const StepScalars, 1> scalars = step.scalars;
  A* const to = kept.data;
  parallel_for(stream, kept.size(), [=] FORGE_LAMBDA(std::int64_t i) {
    if (scalars[0].finite != 0) to[i] = value[i];
  });
}

// basis ← I, where the step is finite.
template <class A>
void set_identity(Stream& stream, const UpdateStep& step, View<A, 2> basis) {
  const std::int64_t k = basis.rows();
  A* const to = basis.data;
  const View<const StepScalars, 1> scalars = step.scalars;
  parallel_for(stream, k * k, [=] FORGE_LAMBDA(std::int64_t i) {
    if (scalars[0].finite != 0) to[i] = A(i % (k + 1) == 0 ? 1 : 0);
  });
}

// products ← products + 1e-3 tr(covariance) / k · basis. shift: one number.
template <class A>
void add_shift(Stream& stream, View<A, 2> covariance, View<A, 2> basis, A* products, double* shift) {
  const std::int64_t k = basis.rows();
  const A* const of = covariance.data;
  const A* const b = basis.data;
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const double trace = team.template sum<double>(k, [=](std::int64_t i) { return double(of[i * k + i]); });
    if (team.leads()) shift[0] = 1e-3 * trace / double(k);
  });
  parallel_for(stream, k * k, [=] FORGE_LAMBDA(std::int64_t i) { products[i] += A(shift[0]) * b[i]; });
}

// v ← β2 v + (1−β2) g²;  g ← (m / (1−β1^t)) / (√(v / (1−β2^t)) + ε)
template <class A>
void adam_direction(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const A* first,
                    View<A, 1> second, A* gradient) {
  const auto t = static_cast<double>(step.number - 1);
  const A beta2 = A(deck.beta2), rest = A(1 - deck.beta2), epsilon = A(deck.epsilon);
  const A bias1 = A(1 - std::pow(deck.beta1, t)), root_bias2 = A(std::sqrt(1 - std::pow(deck.beta2, t)));
  const View<const StepScalars, 1> scalars = step.scalars;
  A* const v = second.data;
  parallel_for(stream, second.size(), [=] FORGE_LAMBDA(std::int64_t i) {
    if (scalars[0].finite == 0) return;
    v[i] = beta2 * v[i] + rest * gradient[i] * gradient[i];
    gradient[i] = first[i] / bias1 / (math::sqrt(v[i]) / root_bias2 + epsilon);
  });
}

// u = clip · g, 0 of a step that isn't finite. G: the type of g.
template <class G, class T>
void prepare_with(Stream& stream, const UpdateStep& step, const UpdateArgs<T>& run, View<T, 1> values) {
  using A = acc_t<T>;
  const View<const StepScalars, 1> scalars = step.scalars;
  const G* const gs = run.template gradients<G>();
  T* const us = values.data;
  parallel_for(stream, values.rows(), [=] FORGE_LAMBDA(std::int64_t i) {
    us[i] = T(scalars[0].finite == 0 ? A(0) : A(gs[i]) * A(scalars[0].clip_coefficient));
  });
}

}  // namespace

// Views of what is kept of a matrix, and of the memory.
template <class T>
struct Rotation<T>::Matrix {
  const RotatedState& n;
  View<A, 1> kept;
  const RotationBuffers<A>& buffers;

  View<A, 1> moment(std::int64_t at) const { return kept.slice(at, at + n.rows * n.columns); }
  View<A, 2> of_rows(std::int64_t at) const { return {kept.data + at, {{n.rows, n.rows}}}; }
  View<A, 2> of_columns(std::int64_t at) const { return {kept.data + at, {{n.columns, n.columns}}}; }
  View<A, 2> whole(A* data) const { return {data, {{n.rows, n.columns}}}; }
};

template <class T>
void Rotation<T>::product(Stream& stream, const View<const A, 2>& a, Transpose ta, const View<const A, 2>& b,
                          Transpose tb, const View<A, 2>& c) {
  const std::int64_t inner = ta == Transpose::yes ? a.rows() : a.extent(1);
  if (tape_) tape_->product({c.rows(), c.extent(1), inner, dtype_of<A>, dtype_of<A>});
  gemm_(stream, ta, tb, 1, a, b, 0, c);
}

template <class T>
void Rotation<T>::rotate(Stream& stream, const Matrix& matrix, A* from, A* to, bool back) {
  const RotatedState& n = matrix.n;
  if (!n.rotates_rows && !n.rotates_columns)
    return copy_on_device(stream, to, from, to_size(n.rows * n.columns) * sizeof(A));
  A* const between = n.rotates_columns ? matrix.buffers.partial.data : to;
  if (n.rotates_rows)
    product(stream, matrix.of_rows(n.basis_of_rows()), back ? Transpose::yes : Transpose::no, matrix.whole(from),
            Transpose::no, matrix.whole(between));
  if (n.rotates_columns)
    product(stream, matrix.whole(n.rotates_rows ? between : from), Transpose::no,
            matrix.of_columns(n.basis_of_columns()), back ? Transpose::no : Transpose::yes, matrix.whole(to));
}

// B ← the rows of B (C + 1e-3 tr(C)/k I) made orthonormal, C the covariance: an iteration towards its eigenvectors
// whose result is unique, however many of its eigenvalues are 0.
template <class T>
void Rotation<T>::refresh(Stream& stream, const UpdateStep& step, const View<A, 2>& covariance, const View<A, 2>& basis,
                          const RotationBuffers<A>& buffers) {
  const std::int64_t k = basis.rows();
  const View<A, 2> products(buffers.square.data, {{k, k}}), next(buffers.basis.data, {{k, k}});
  gemm_(stream, Transpose::no, Transpose::no, 1, View<const A, 2>(basis), View<const A, 2>(covariance), 0, products);
  add_shift(stream, covariance, basis, products.data, buffers.reflections.data + 2 * k);
  orthonormal_rows(stream, products, next, buffers.reflections);
  replace(stream, step, next.data, line_of(basis));
}

// SOAP (Vyas et al. 2024, arXiv 2409.11321, algorithm 3): Adam in the bases of Shampoo, of a matrix (m, n). Rows of B_L
// and B_R are near the eigenvectors of L and R.
//   M ← β1 M + (1−β1) G;  G' = B_L G B_Rᵀ;  M' = B_L M B_Rᵀ;  V ← β2 V + (1−β2) G'²
//   N' = (M' / (1−β1^t)) / (√(V / (1−β2^t)) + ε);  x ← B_Lᵀ N' B_R
//   L ← β2 L + (1−β2) G Gᵀ;  R ← β2 R + (1−β2) GᵀG;  in every so many updates B_L, B_R anew
// The first update makes L, R and the bases from the identity, and x = 0; t counts those behind it.
template <class T>
void Rotation<T>::operator()(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step,
                             const RotatedState& state, View<A, 1> kept, View<T, 1> x,
                             const RotationBuffers<A>& buffers) {
  const Matrix matrix{state, kept, buffers};
  const bool first = step.number == 1;
  const std::int64_t n = state.rows * state.columns;
  A *const gradient = buffers.gradient.data, *const rotated = buffers.rotated.data;
  const View<A, 1> whole_gradient = buffers.gradient.slice(0, n);
  convert<T, A>(stream, x, whole_gradient);
  const auto covariance_of = [&](const View<A, 2>& covariance, const View<A, 2>& basis, bool of_rows) {
    const View<A, 2> g = matrix.whole(gradient), square(buffers.square.data, covariance.extents);
    product(stream, g, of_rows ? Transpose::no : Transpose::yes, g, of_rows ? Transpose::yes : Transpose::no, square);
    blend(stream, step, 1 - deck.beta2, square.data, line_of(covariance));
    if (first) set_identity(stream, step, basis);
  };
  const View<A, 2> left = matrix.of_rows(state.covariance_of_rows()),
                   basis_left = matrix.of_rows(state.basis_of_rows());
  const View<A, 2> right = matrix.of_columns(state.covariance_of_columns()),
                   basis_right = matrix.of_columns(state.basis_of_columns());
  if (state.rotates_rows) covariance_of(left, basis_left, true);
  if (state.rotates_columns) covariance_of(right, basis_right, false);
  const View<A, 1> moment = matrix.moment(state.first_moment());
  if (!first) blend(stream, step, 1 - deck.beta1, gradient, moment);
  rotate(stream, matrix, gradient, rotated, false);
  rotate(stream, matrix, moment.data, gradient, false);
  if (first)
    fill_zero(stream, rotated, to_size(n) * sizeof(A));
  else
    adam_direction(stream, deck, step, gradient, matrix.moment(state.second_moment()), rotated);
  rotate(stream, matrix, rotated, gradient, true);
  convert<A, T>(stream, whole_gradient, x);
  if ((step.number - 1) % deck.soap_basis_every_steps != 0) return;
  if (state.rotates_rows) refresh(stream, step, left, basis_left, buffers);
  if (state.rotates_columns) refresh(stream, step, right, basis_right, buffers);
}

FORGE_INSTANTIATE_CLASS(Rotation);

// What is sent to the owner: the gradient, 0 of a step that isn't finite.
template <class T>
void soap_prepare(Stream& stream, const UpdateStep& step, const UpdateArgs<T>& run, View<T, 1> values) {
  with_gradient_type(run, [&]<class G>(std::type_identity<G>) { prepare_with<G>(stream, step, run, values); });
}

FORGE_INSTANTIATE_FUNCTION(soap_prepare);

}  // namespace forge
