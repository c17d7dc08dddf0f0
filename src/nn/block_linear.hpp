#pragma once

#include "kernels/fp8.hpp"
#include "kernels/fp8_history.hpp"
#include "kernels/fp8_product.hpp"
#include "nn/count_operands.hpp"
#include "nn/linear.hpp"

namespace forge {

// The products of a block with its weights, which the deck may have in FP8: operands are rounded as its recipe says
// (model/scaled_product.hpp) before the product, wherever it is computed. Layers say only how tp splits the weight.

// Two operands as the product reads them.
template <class T>
struct Operands {
  View<const T, 2> a, b;
  bool fp8 = false;
};

// amax ← the largest of the ranks' in the group; those of the two operands that the ranks share stand together.
template <class T>
void reduce_amax(Context<T>& ctx, Communicator* group, const ScaledProduct& p, bool of_a, bool of_b) {
  if (!group || (!of_a && !of_b)) return;
  const Fp8Buffers<T>& s = ctx.fp8;
  const View<float, 1> amax = s.amax.slice(of_a ? 0 : p.a.groups(), of_b ? p.groups() : p.a.groups());
  if (amax.rows() == 0) return;  // no row came to this rank's experts, nor to those of its etp ranks
  const View<float, 1> all = s.gathered.slice(0, group->size() * amax.rows());
  group->all_gather(ctx.stream, View<const float, 1>(amax), all);
  fp8_amax_of_ranks(ctx.stream, group->size(), all, amax);
}

// An operand in `memory`, rounded with the largest magnitudes `amax`.
template <class T>
View<const T, 2> round_operand(Context<T>& ctx, View<const T, 2> x, const ScaledOperand& operand,
                               View<const float, 1> amax, View<T, 1> memory) {
  const View<T, 2> y(memory.data, {{x.rows(), x.columns()}});
  fp8_round<T>(ctx.stream, x, operand, ctx.buffers.fp8.exact, amax, y);
  return y;
}

template <class T>
void require_shapes(const ScaledProduct& p, const View<const T, 2>& a, const View<const T, 2>& b) {
  require(p.a.columns == a.columns() && p.matrices() * p.b.rows == b.rows() && p.b.columns == b.columns(),
          "a block's product has another weight than its plan");
}

// The i-th matrix of the second operand, and its amaxes.
template <class T>
View<const T, 2> matrix_of(const ScaledProduct& p, View<const T, 2> b, std::int64_t i) {
  return b.slice(i * p.b.rows, (i + 1) * p.b.rows);
}
template <class T>
View<float, 1> amax_of_matrix(const Context<T>& ctx, const ScaledProduct& p, std::int64_t i) {
  return ctx.fp8.amax.slice(p.a.groups() + i * p.b.groups(), p.a.groups() + (i + 1) * p.b.groups());
}

// The amaxes of a and b, over the ranks that share them; those of a weight that was gathered as codes are known.
template <class T>
void take_amaxes(Context<T>& ctx, BlockProduct product, const ScaledProduct& p, View<const T, 2> a,
                 View<const T, 2> b) {
  const Fp8Buffers<T>& s = ctx.fp8;
  if (ctx.operations && p.coded) ctx.operations->scales(ctx.stream, ctx.weight_amaxes[to_size(product)]);
  fp8_amax<T>(ctx.stream, a, p.a, s.partials, s.amax.slice(0, p.a.groups()));
  for (std::int64_t i = 0; i < p.matrices() && !p.coded; ++i)
    fp8_amax<T>(ctx.stream, matrix_of<T>(p, b, i), p.b, s.partials, amax_of_matrix<T>(ctx, p, i));
  reduce_amax(ctx, p.splitters() == Group::etp ? ctx.groups.etp : ctx.groups.tp, p, p.a.over_tp,
              p.b.over_tp && !p.coded);
  reduce_amax(ctx, ctx.groups.cp, p, p.a.over_cp, p.b.over_cp);
}

// The amaxes that the steps before gave the tensors a and b; those of a and b themselves are for the steps to come.
template <class T>
void delayed_amaxes(Context<T>& ctx, ProductOf of, BlockProduct product, const ScaledProduct& p, View<const T, 2> a,
                    View<const T, 2> b) {
  const Fp8History& history = ctx.fp8_history;
  const Array<RoundedTensor, 2> tensors = rounded_operands(of);
  for (int i = 0; i < 2; ++i) {
    const std::int64_t row = history.row(product, tensors[i]);
    const View<float, 1> amax = ctx.fp8.amax.slice(i, i + 1);
    if (history.records && i < recorded_operands(of)) {
      const bool known = i == 1 && p.coded;
      if (!known) fp8_amax<T>(ctx.stream, i == 0 ? a : b, i == 0 ? p.a : p.b, ctx.fp8.partials, amax);
      fp8_raise(ctx.stream, known ? ctx.weight_amaxes[to_size(product)] : amax, history.step.slice(row, row + 1));
    }
    fp8_amax_of_history(ctx.stream, history.entries, row, amax);
    if (ctx.operations && i == 1 && p.coded) ctx.operations->scales(ctx.stream, amax);
  }
}

// a and b as `p` says, with the amaxes that were found; of experts, whose matrices stand in b one below the other, with
// the scales of each.
template <class T>
Operands<T> round_operands(Context<T>& ctx, const ScaledProduct& p, View<const T, 2> a, View<const T, 2> b) {
  const Fp8Buffers<T>& s = ctx.fp8;
  if (ctx.operations) ctx.operations->scales(ctx.stream, s.amax.slice(0, p.coded ? p.a.groups() : p.groups()));
  for (std::int64_t i = 0; i < p.matrices() && !p.coded; ++i)
    round_operand<T>(ctx, matrix_of<T>(p, b, i), p.b, amax_of_matrix<T>(ctx, p, i),
                     s.b.slice(i * p.b.rows * p.b.columns, s.b.rows()));
  return {round_operand<T>(ctx, a, p.a, s.amax.slice(0, p.a.groups()), s.a),
          p.coded ? b : View<const T, 2>(s.b.data, b.extents), true};
}

// The product of a and b, which is in FP8, with the amaxes of its operands found.
template <class T>
ScaledProduct find_amaxes(Context<T>& ctx, ProductOf of, const MatrixSplit& w, View<const T, 2> a, View<const T, 2> b) {
  ScaledProduct p = scaled_product(ctx.buffers, of, a.rows(), w, ctx.groups.tp_rank());
  p.coded = of != ProductOf::weight_gradient && !ctx.weight_amaxes[to_size(w.product)].empty();
  require_shapes(p, a, b);
  if (ctx.buffers.fp8.properties().has_history())
    delayed_amaxes<T>(ctx, of, w.product, p, a, b);
  else
    take_amaxes<T>(ctx, w.product, p, a, b);
  return p;
}

// a: the activation or output gradient; b: the weight, or in its gradient the activation.
template <class T>
Operands<T> operands_of(Context<T>& ctx, ProductOf of, const MatrixSplit& w, View<const T, 2> a, View<const T, 2> b) {
  if (!ctx.fp8_block || !rounds_product(ctx.buffers.fp8, of)) return {a, b};
  const ScaledProduct p = find_amaxes<T>(ctx, of, w, a, b);
  const Operands<T> rounded = round_operands<T>(ctx, p, a, b);
  count_operands<T>(ctx, of, w, p, a, b);
  return rounded;
}
// Of experts; b has their matrices one below the other.
template <class T>
ScaledProduct find_expert_amaxes(Context<T>& ctx, ProductOf of, const MatrixSplit& w, View<const T, 2> a,
                                 View<const T, 2> b) {
  ScaledProduct p = scaled_experts(ctx.buffers, of, a.rows(), w, ctx.groups.etp_rank());
  p.coded = !ctx.weight_amaxes[to_size(w.product)].empty();
  require_shapes(p, a, b);
  take_amaxes<T>(ctx, w.product, p, a, b);
  return p;
}
template <class T>
View<const T, 2> one_below_the_other(View<const T, 3> w) {
  return View<const T, 2>(w.data, {{w.extent(0) * w.extent(1), w.extent(2)}});
}
// The second operand is w(E / ep, N, K), rounded or not.
template <class T>
Operands<T> expert_operands(Context<T>& ctx, ProductOf of, const MatrixSplit& split, View<const T, 2> a,
                            View<const T, 3> w) {
  const View<const T, 2> matrices = one_below_the_other(w);
  if (!ctx.fp8_block || !rounds_experts(ctx.buffers.fp8, of)) return {a, matrices};
  const ScaledProduct p = find_expert_amaxes<T>(ctx, of, split, a, matrices);
  const Operands<T> rounded = round_operands<T>(ctx, p, a, matrices);
  count_operands<T>(ctx, of, split, p, a, matrices);
  return rounded;
}

// C = or += the product of codes, by cuBLASLt where the deck says so and that library takes them.
template <class T, class TC>
void multiply_operands(Context<T>& ctx, const Fp8Codes& a, const Fp8Codes& b, bool adds, View<TC, 2> c) {
  const Fp8Options& fp8 = ctx.buffers.fp8;
  const bool done = fp8.cublaslt && ctx.gemm.template fp8_product<TC>(ctx.stream, a, b, fp8_scaling(fp8.recipe), adds,
                                                                      c, ctx.fp8.factors);
  if (!done) fp8_product<TC>(ctx.stream, a, b, adds, c);
}

// The codes of both operands of a product whose amaxes are found.
struct OperandCodes {
  Fp8Codes a, b;
};
// A weight that was gathered as codes is encoded once more: with the amaxes that it was rounded with its numbers, exact
// in bf16 or rounded to it by less than half a code's distance, give the same codes.
template <class T>
OperandCodes encode_operands(Context<T>& ctx, ProductOf of, BlockProduct product, const ScaledProduct& p,
                             View<const T, 2> a, View<const T, 2> b) {
  const Fp8Options& fp8 = ctx.buffers.fp8;
  const Fp8Buffers<T>& s = ctx.fp8;
  if (ctx.operations) ctx.operations->scales(ctx.stream, s.amax.slice(0, p.coded ? p.a.groups() : p.groups()));
  const bool gathered = p.coded && (p.experts > 0 || !fp8.properties().has_history());  // experts have no history
  const View<const float, 1> of_b =
      gathered ? ctx.weight_amaxes[to_size(product)] : s.amax.slice(p.a.groups(), p.groups());
  const View<const float, 1> of_a = s.amax.slice(0, p.a.groups());
  return {fp8_encode(ctx.stream, a, p.a, sums_rows_of_a(of), fp8.exact, of_a, s.a_codes),
          fp8_encode(ctx.stream, b, p.b, sums_rows_of_b(of), fp8.exact, of_b, s.b_codes, p.matrices())};
}

// C = or += the product of a and b, by tensor cores from their codes; false, and nothing done, where that isn't theirs.
template <class T, class TC>
bool multiply_codes(Context<T>& ctx, ProductOf of, const MatrixSplit& w, View<const T, 2> a, View<const T, 2> b,
                    bool adds, View<TC, 2> c) {
  if constexpr (std::is_same_v<T, bf16>) {
    const Fp8Options& fp8 = ctx.buffers.fp8;
    if (!ctx.fp8_block || !fp8.tensor_cores || !rounds_product(fp8, of)) return false;
    const ScaledProduct p = find_amaxes<T>(ctx, of, w, a, b);
    const OperandCodes codes = encode_operands<T>(ctx, of, w.product, p, a, b);
    note_product(ctx, c, sums_rows_of_a(of) ? a.rows() : a.columns(), true);
    multiply_operands<T, TC>(ctx, codes.a, codes.b, adds, c);
    count_operands<T>(ctx, of, w, p, a, b);
    return true;
  }
  return false;
}
// C = the products of experts' rows with w(E / ep, N, K), in the same way.
template <class T>
bool multiply_expert_codes(Context<T>& ctx, ProductOf of, const ExpertRows& rows, const MatrixSplit& split,
                           View<const T, 2> a, View<const T, 3> w, View<T, 2> c) {
  if constexpr (std::is_same_v<T, bf16>) {
    const Fp8Options& fp8 = ctx.buffers.fp8;
    if (!ctx.fp8_block || !fp8.tensor_cores || !rounds_experts(fp8, of)) return false;
    const View<const T, 2> matrices = one_below_the_other(w);
    const ScaledProduct p = find_expert_amaxes<T>(ctx, of, split, a, matrices);
    const OperandCodes codes = encode_operands<T>(ctx, of, split.product, p, a, matrices);
    note_experts<T>(ctx, false, rows, c.columns(), a.columns(), true, true);
    fp8_grouped_rows(ctx.stream, rows.groups, codes.a, codes.b, c);
    count_operands<T>(ctx, of, split, p, a, matrices);
    return true;
  }
  return false;
}

// y(R,N) = x(R,K) Wᵀ + b; rows as of scaled_product.
template <class T>
void block_linear_forward(Context<T>& ctx, const MatrixSplit& split, View<const T, 2> x, View<const T, 2> w,
                          View<const T, 1> b, View<T, 2> y) {
  if (multiply_codes<T>(ctx, ProductOf::output, split, x, w, false, y)) {
    if (!b.empty()) add_bias<T>(ctx.stream, b, y);
    return;
  }
  const Operands<T> o = operands_of<T>(ctx, ProductOf::output, split, x, w);
  linear_forward<T>(ctx, o.a, o.b, b, y, o.fp8);
}

// dx(R,K) = dy(R,N) W, or dx += dy W.
template <class T>
void block_linear_backward_input(Context<T>& ctx, const MatrixSplit& split, View<const T, 2> dy, View<const T, 2> w,
                                 View<T, 2> dx, bool adds = false) {
  if (multiply_codes<T>(ctx, ProductOf::input_gradient, split, dy, w, adds, dx)) return;
  const Operands<T> o = operands_of<T>(ctx, ProductOf::input_gradient, split, dy, w);
  linear_backward_input<T>(ctx, o.a, o.b, dx, adds, o.fp8);
}

// dW(N,K) += dyᵀ x.
template <class T>
void block_linear_backward_weight(Context<T>& ctx, const MatrixSplit& split, View<const T, 2> dy, View<const T, 2> x,
                                  View<acc_t<T>, 2> dw) {
  if (multiply_codes<T>(ctx, ProductOf::weight_gradient, split, dy, x, true, dw)) return;
  const Operands<T> o = operands_of<T>(ctx, ProductOf::weight_gradient, split, dy, x);
  linear_backward_weight<T>(ctx, o.a, o.b, dw, o.fp8);
}

// The same of this rank's experts; W(E / ep, N, K). Weight gradients are never rounded: expert_backward_weight of
// nn/linear.hpp.
template <class T>
void block_expert_forward(Context<T>& ctx, const ExpertRows& rows, const MatrixSplit& split, View<const T, 2> x,
                          View<const T, 3> w, View<T, 2> y) {
  if (multiply_expert_codes<T>(ctx, ProductOf::output, rows, split, x, w, y)) return;
  const Operands<T> o = expert_operands<T>(ctx, ProductOf::output, split, x, w);
  expert_forward<T>(ctx, rows, o.a, View<const T, 3>(o.b.data, w.extents), y, o.fp8);
}
template <class T>
void block_expert_backward_input(Context<T>& ctx, const ExpertRows& rows, const MatrixSplit& split, View<const T, 2> dy,
                                 View<const T, 3> w, View<T, 2> dx) {
  if (multiply_expert_codes<T>(ctx, ProductOf::input_gradient, rows, split, dy, w, dx)) return;
  const Operands<T> o = expert_operands<T>(ctx, ProductOf::input_gradient, split, dy, w);
  expert_backward_input<T>(ctx, rows, o.a, View<const T, 3>(o.b.data, w.extents), dx, o.fp8);
}

}  // namespace forge
