#pragma once

#include <initializer_list>
#include <vector>

#include "kernels/fp8/fp8_history_rows.hpp"
#include "kernels/fp8/fp8_operand.hpp"
#include "kernels/fp8/fp8_round.hpp"
#include "nn/fp8/count_operands.hpp"
#include "nn/linear.hpp"
#include "nn/row_operand.hpp"

namespace forge {

// The operands of a block's products (nn/block_products.hpp) in FP8, as its recipe has them (fp8/scaled_product.hpp):
// rounded, or their codes.

// Two operands as the product reads them.
template <class T>
struct Operands {
  View<const T, 2> a, b;
  bool rounded = false;
};

// amax ← the largest of the ranks' in the group; those of the two operands that the ranks share stand together.
template <class T>
void reduce_amax(const Context<T>& ctx, Communicator* group, const OperandAmaxes& of, bool of_a, bool of_b) {
  if (!group || (!of_a && !of_b)) return;
  View<float, 1> amax = of_a ? of.a : of.b;
  if (of_a && of_b) amax.extents[0] += of.b.rows();
  const View<float, 1> all = ctx.scratch.rounding.gathered.slice(0, group->size() * amax.rows());
  group->all_gather(ctx.stream, View<const float, 1>(amax), all);
  // None where no row came to this rank's experts, nor to those of its etp ranks.
  if (amax.rows() > 0) fp8_amax_of_ranks(ctx.stream, group->size(), all, amax);
}

// x, or so many matrices one below the other, in `memory`, rounded with the largest magnitudes `amax`; `seen` of its
// own, with samples of its rows.
template <class T>
View<const T, 2> round_operand(const Context<T>& ctx, View<const T, 2> x, const ScaledOperand& operand,
                               View<const float, 1> amax, View<T, 1> memory, std::int64_t matrices, View<float, 1> seen,
                               View<const std::int64_t, 1> samples = {}) {
  const View<T, 2> y(memory.data, {{x.rows(), x.columns()}});
  fp8_round<T>(ctx.stream, x, operand, ctx.buffers.rounding.exact, amax, y, matrices, seen, samples);
  return y;
}

template <class T>
void require_shapes(const ScaledProduct& p, const View<const T, 2>& a, const View<const T, 2>& b) {
  require(p.a.columns == a.columns() && p.matrices() * p.b.rows == b.rows() && p.b.columns == b.columns(),
          "a block's product has another weight than its plan");
}

// amax ← those of an operand of a product: of activations or gradients, without rows of filler.
template <class T>
void take_amax(const Context<T>& ctx, const ScaledProduct& p, View<const T, 2> x, const ScaledOperand& operand,
               View<float, 1> amax, std::int64_t matrices, bool rows) {
  const View<const std::int64_t, 1> samples =
      rows && p.experts == 0 ? samples_of(ctx, x.rows()) : View<const std::int64_t, 1>();
  take_amax<T>(ctx.stream, x, operand, amax, matrices, samples, saves_amaxes_of(ctx, p));
}

// The amaxes of a and b, over the ranks that share them, but for those that are known. The kernel that made a may have
// left this rank's.
template <class T>
void take_amaxes(const Context<T>& ctx, ProductOf of, const ScaledProduct& p, const OperandAmaxes& amax,
                 const RowOperand<T>& a, View<const T, 2> b) {
  if (p.takes_a() && !a.measured()) take_amax<T>(ctx, p, a.values(), p.a, amax.a, 1, true);
  if (p.takes_b()) take_amax<T>(ctx, p, b, p.b, amax.b, p.matrices(), of == ProductOf::weight_gradient);
  reduce_amax(ctx, p.splitters() == Group::etp ? ctx.groups.etp : ctx.groups.tp, amax, p.a.over_tp && p.takes_a(),
              p.b.over_tp && p.takes_b());
  reduce_amax(ctx, ctx.groups.cp, amax, p.a.over_cp && p.takes_a(), p.b.over_cp && p.takes_b());
}

// The amaxes that the steps before gave the tensors a and b. Those of a and b themselves are found where these are
// rounded, but for a weight's that was gathered as codes.
template <class T>
FoundAmaxes delayed_amaxes(const Context<T>& ctx, ProductOf of, BlockProduct product, const ScaledProduct& p) {
  const AmaxHistory& history = ctx.services.amax_history;
  const Array<RoundedTensor, 2> tensors = rounded_operands(of);
  FoundAmaxes found{p,
                    {history.given_to(ctx.rounding.layer, product, tensors[0]),
                     history.given_to(ctx.rounding.layer, product, tensors[1])}};
  const int recorded = ctx.rounding.records ? recorded_operands(of) : 0;
  if (recorded > 0) found.seen.a = history.seen_of(ctx.rounding.layer, product, tensors[0]);
  if (recorded > 1) found.seen.b = history.seen_of(ctx.rounding.layer, product, tensors[1]);
  if (p.coded) {
    if (recorded > 1) fp8_raise(ctx.stream, ctx.rounding.weights[to_size(product)], found.seen.b);
    found.seen.b = {};
  }
  return found;
}

// Tells tests the amaxes that give the scales of what a product rounds.
template <class T>
void note_scales(const Context<T>& ctx, const OperandAmaxes& amax) {
  if (!ctx.operations) return;
  ctx.operations->scales(ctx.stream, amax.a);
  ctx.operations->scales(ctx.stream, amax.b);
}

// a and b as `p` says, with the amaxes that were found; of experts, whose matrices stand in b one below the other, with
// the scales of each.
template <class T>
Operands<T> round_operands(const Context<T>& ctx, const FoundAmaxes& found, View<const T, 2> a, View<const T, 2> b) {
  const auto& [p, amax, seen] = found;
  note_scales(ctx, amax);
  if (!p.coded) b = round_operand<T>(ctx, b, p.b, amax.b, ctx.scratch.rounding.b, p.matrices(), seen.b);
  return {
      round_operand<T>(ctx, a, p.a, amax.a, ctx.scratch.rounding.a, 1, seen.a, recorded_samples(ctx, seen, a.rows())),
      b, true};
}

// The product of a and b, which is in FP8, with the amaxes of its operands found.
template <class T>
FoundAmaxes find_amaxes(const Context<T>& ctx, ProductOf of, const MatrixSplit& w, const RowOperand<T>& a,
                        View<const T, 2> b) {
  const ScaledProduct p = product_in_fp8(ctx, of, a.values().rows(), w);
  require_shapes(p, a.values(), b);
  if (ctx.buffers.rounding.has_history()) return delayed_amaxes(ctx, of, w.product, p);
  const OperandAmaxes amax = place_of_amaxes(ctx, of, w.product, p);
  take_amaxes<T>(ctx, of, p, amax, a, b);
  return {p, amax};
}

// a: the activation or output gradient; b: the weight, or in its gradient the activation.
template <class T>
Operands<T> operands_of(const Context<T>& ctx, ProductOf of, const MatrixSplit& w, const RowOperand<T>& a,
                        View<const T, 2> b) {
  if (!ctx.rounding.block || !rounds_product(ctx.buffers.rounding, of)) return {a.values(), b};
  const FoundAmaxes found = find_amaxes<T>(ctx, of, w, a, b);
  const Operands<T> rounded = round_operands<T>(ctx, found, a.values(), b);
  count_operands<T>(ctx, of, w, found.p, found.amax, a.values(), b);
  return rounded;
}
// Of experts; b has their matrices one below the other.
template <class T>
FoundAmaxes find_expert_amaxes(const Context<T>& ctx, ProductOf of, const MatrixSplit& w, View<const T, 2> a,
                               View<const T, 2> b) {
  ScaledProduct p = scaled_experts(ctx.buffers, of, a.rows(), w, ctx.groups.etp_rank());
  p.coded = ctx.buffers.rounding.has_coded_experts(ctx.rounding.layer);
  require_shapes(p, a, b);
  const OperandAmaxes amax = place_of_amaxes(ctx, of, w.product, p);
  take_amaxes<T>(ctx, of, p, amax, a, b);
  return {p, amax};
}
template <class T>
View<const T, 2> one_below_the_other(View<const T, 3> w) {
  return View<const T, 2>(w.data, {{w.extent(0) * w.extent(1), w.extent(2)}});
}
// The second operand is w(E / ep, N, K), rounded or not.
template <class T>
Operands<T> expert_operands(const Context<T>& ctx, ProductOf of, const MatrixSplit& split, View<const T, 2> a,
                            View<const T, 3> w) {
  const View<const T, 2> matrices = one_below_the_other(w);
  if (!ctx.rounding.block || !rounds_experts(ctx.buffers.rounding, of)) return {a, matrices};
  const FoundAmaxes found = find_expert_amaxes<T>(ctx, of, split, a, matrices);
  const Operands<T> rounded = round_operands<T>(ctx, found, a, matrices);
  count_operands<T>(ctx, of, split, found.p, found.amax, a, matrices);
  return rounded;
}

// A product of a and b in FP8, of a weight that is split so.
template <class T>
struct ProductToCode {
  MatrixSplit split;
  RowOperand<T> a;
  View<const T, 2> b;
};

// The codes of both operands of one product or two; `made`: the kernel that makes the second one's first operand writes
// that one's. A weight that was gathered as codes is encoded once more: with the amaxes that it was rounded with its
// numbers, exact in bf16 or rounded to it by less than half a code's distance, give the same codes.
template <class T>
Array<CodedProduct, 2> encode_operands(const Context<T>& ctx, ProductOf of,
                                       std::initializer_list<ProductToCode<T>> products, bool made = false) {
  const RoundingOptions& rounding = ctx.buffers.rounding;
  const RoundingBuffers<T>& s = ctx.scratch.rounding;
  const bool turns_a = sums_rows_of_a(of);
  Array<CodedProduct, 2> coded{};
  std::vector<Fp8Input> inputs;
  View<std::uint8_t, 1> a_codes = s.a_codes, b_codes = s.b_codes;
  for (const auto& [split, a, b] : products) {
    const bool here = inputs.empty() || !made;
    const auto& [p, amax, seen] = coded[inputs.empty() ? 0 : 1].found = find_amaxes<T>(ctx, of, split, a, b);
    note_scales(ctx, amax);
    inputs.push_back({a.values(), p.a, turns_a, amax.a, here ? a_codes : s.a_codes, here ? seen.a : View<float, 1>(),
                      recorded_samples(ctx, seen, a.values().rows()), !here});
    inputs.push_back({b, p.b, sums_rows_of_b(of), amax.b, b_codes, seen.b});
    a_codes = a_codes.slice(code_bytes(p.a, turns_a), a_codes.rows());
    b_codes = b_codes.slice(code_bytes(p.b, sums_rows_of_b(of)), b_codes.rows());
  }
  const auto codes = fp8_encode(ctx.stream, inputs, rounding.exact, code_scaling(rounding.recipe), s.factors);
  coded[0].codes = codes[0], coded[1].codes = codes[1];
  return coded;
}

// Whether a product (rows, columns) of a block that runs now is one of codes, where it begins at a multiple of 16
// bytes, as do its rows.
template <class T>
bool is_of_codes(const Context<T>& ctx, ProductOf of, std::int64_t rows, std::int64_t columns) {
  const RoundingOptions& rounding = ctx.buffers.rounding;
  return std::is_same_v<T, bf16> && ctx.rounding.block && rounding.codes && rounds_product(rounding, of) &&
         cublaslt_takes(code_scaling(rounding.recipe), rows, columns);
}
template <class T, class TC>
bool is_of_codes(const Context<T>& ctx, ProductOf of, const View<TC, 2>& c) {
  return is_of_codes(ctx, of, c.rows(), c.columns()) && cublaslt_takes(code_scaling(ctx.buffers.rounding.recipe), c);
}

// The first operands of two products with the codes of both, which one launch makes, where joins_codes(): of gradients
// of weights; or of a product and the next, whose first operand RowOperand::measured() fills behind the first product.
// Elsewhere as they are.
template <class T>
Array<RowOperand<T>, 2> code_together(const Context<T>& ctx, ProductOf of, const ProductToCode<T>& x,
                                      const ProductToCode<T>& y) {
  if constexpr (std::is_same_v<T, bf16>) {
    const bool sums = of == ProductOf::weight_gradient;
    const auto taken = [&](const ProductToCode<T>& each) {
      const std::int64_t R = each.a.values().rows(), N = each.split.rows.count(), K = each.split.columns.count();
      return is_of_codes(ctx, of, sums ? N : R, of == ProductOf::output ? N : K);
    };
    if (joins_codes(ctx.buffers.rounding, of) && taken(x) && taken(y)) {
      const Array<CodedProduct, 2> coded = encode_operands<T>(ctx, of, {x, y}, !sums);
      return {{{x.a.values(), coded[0]}, {y.a.values(), coded[1]}}};
    }
  }
  return {{x.a, y.a}};
}

// C = or += the product of a and b from their codes, by cuBLASLt; false, and nothing done, where numbers are
// multiplied.
template <class T, class TC>
bool multiply_codes(const Context<T>& ctx, ProductOf of, const MatrixSplit& w, const RowOperand<T>& a,
                    View<const T, 2> b, bool adds, View<TC, 2> c) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (!is_of_codes(ctx, of, c)) return false;
    const CodedProduct coded = a.coded() ? *a.coded() : encode_operands<T>(ctx, of, {{w, a, b}})[0];
    note_product(ctx, c, sums_rows_of_a(of) ? a.values().rows() : a.values().columns(), true, true);
    ctx.gemm.template code_product<TC>(ctx.stream, coded.codes, code_scaling(ctx.buffers.rounding.recipe), adds, c);
    count_operands<T>(ctx, of, w, coded.found.p, coded.found.amax, a.values(), b);
    return true;
  }
  return false;
}

}  // namespace forge
