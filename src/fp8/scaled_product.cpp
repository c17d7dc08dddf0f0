#include "fp8/scaled_product.hpp"

#include "fp8/saved_amaxes.hpp"

namespace forge {

ScaleLines lines_alone(std::int64_t lines) {
  ScaleLines g;
  g.count = lines;
  g.begin[1] = g.base[1] = lines;
  return g;
}

bool rounds_product(const RoundingOptions& rounding, ProductOf of) {
  return rounding.properties().rounds_sums_of_rows() || rounding.transposed || of != ProductOf::weight_gradient;
}

bool takes_amaxes_of_rows(const RoundingOptions& rounding) {
  return rounding.on && rounding.properties().rows != RowScale::token_block && !rounding.has_history();
}

namespace {

ScaleLines one_group(std::int64_t lines) {
  ScaleLines g;
  g.each = std::max<std::int64_t>(lines, 2);
  g.begin[1] = lines;
  g.base[1] = 1;
  return g;
}

// Rows from `first` on of sequences of as many rows each.
ScaleLines sequences(std::int64_t lines, std::int64_t first, std::int64_t rows_each, std::int64_t count) {
  ScaleLines g;
  g.count = count;
  g.each = rows_each;
  g.shift[0] = first;
  g.begin[1] = lines;
  g.base[1] = count;
  return g;
}

// This rank of those that split matrices.
struct Splitter {
  int ranks, rank;
};

// Blocks of each part as it stands in the whole tensor.
ScaleLines blocks(const MatrixLines& lines, Splitter splitter) {
  ScaleLines g;
  g.each = scale_width;
  g.parts = static_cast<std::int32_t>(lines.parts.size());
  for (std::size_t p = 0; p < lines.parts.size(); ++p) {
    const auto [count, copies] = lines.parts[p];
    const std::int64_t pieces = lines.split ? splitter.ranks / copies : 1,
                       piece = lines.split ? splitter.rank / copies : 0;
    g.shift[p] = piece * count - g.begin[p];
    g.begin[p + 1] = g.begin[p] + count;
    g.base[p + 1] = g.base[p] + (pieces * count + scale_width - 1) / scale_width;
  }
  g.count = g.base[lines.parts.size()];
  return g;
}

// By token: a scale for its row, or for each block of its columns.
ScaledOperand token_rows(const BufferContext& c, std::int64_t rows, const MatrixLines& columns, Fp8Format format,
                         Splitter splitter) {
  const bool split = columns.split && splitter.ranks > 1;
  ScaledOperand x{rows, columns.count(), lines_alone(rows), one_group(columns.count()), format, split, false};
  if (c.rounding.properties().rows == RowScale::token_block) x.by_column = blocks(columns, splitter);
  return x;
}

ScaledOperand activation(const BufferContext& c, std::int64_t rows, const MatrixLines& columns, Fp8Format format,
                         Splitter tp) {
  const Microbatch& m = c.microbatch;
  const bool own = rows != m.rows();
  ScaledOperand x = token_rows(c, rows, columns, format, tp);
  if (c.rounding.properties().rows == RowScale::sequence) {
    x.by_row = sequences(rows, own ? tp.rank * rows : 0, m.local_tokens(), m.sequences);
    x.over_tp = x.over_tp || own;
    x.over_cp = m.cp > 1;
  }
  return x;
}

ScaledOperand weight(const BufferContext& c, ProductOf of, const MatrixSplit& w, Splitter splitter) {
  const std::int64_t N = w.rows.count(), K = w.columns.count();
  const bool by_rows = w.rows.split && splitter.ranks > 1, by_columns = w.columns.split && splitter.ranks > 1;
  ScaledOperand x{N, K, one_group(N), one_group(K), c.rounding.properties().operands, by_rows || by_columns, false};
  const WeightScale scales = c.rounding.properties().weights;
  if (scales == WeightScale::block) {
    x.by_row = blocks(w.rows, splitter);
    x.by_column = blocks(w.columns, splitter);
  } else if (scales == WeightScale::line && of == ProductOf::output) {
    x.by_row = lines_alone(N);
    x.over_tp = by_columns;
  } else if (scales == WeightScale::line) {
    x.by_column = lines_alone(K);
    x.over_tp = by_rows;
  }
  return x;
}

// An operand of a weight gradient as its transposed copy has it: a scale for each column of 128 rows of a sequence. cp
// ranks have whole groups (layout/check_layout.cpp).
ScaledOperand transposed(const BufferContext& c, std::int64_t rows, std::int64_t columns, Splitter tp) {
  const Microbatch& m = c.microbatch;
  const bool own = rows != m.rows();
  ScaledOperand x{rows, columns, {}, lines_alone(columns), c.rounding.properties().operands, own, false};
  ScaleLines& g = x.by_row;
  g.each = scale_width;
  g.period = m.local_tokens();
  g.groups_each = (g.period + scale_width - 1) / scale_width;
  g.count = m.sequences * g.groups_each;
  g.shift[0] = own ? tp.rank * rows : 0;
  g.begin[1] = rows;
  g.base[1] = g.count;
  return x;
}

// A scale of the whole model's tensor, known before: none is asked of other ranks.
ScaledProduct delayed_product(const Fp8RecipeRow& recipe, ProductOf of, std::int64_t rows, const MatrixSplit& w) {
  const auto whole = [](std::int64_t lines, std::int64_t columns, Fp8Format format) {
    return ScaledOperand{lines, columns, one_group(lines), one_group(columns), format};
  };
  const std::int64_t N = w.rows.count(), K = w.columns.count();
  const ScaledOperand x = whole(rows, K, recipe.operands), dy = whole(rows, N, recipe.gradients);
  const ScaledOperand weights = whole(N, K, recipe.operands);
  if (of == ProductOf::output) return {x, weights};
  return of == ProductOf::input_gradient ? ScaledProduct{dy, weights} : ScaledProduct{dy, x};
}

}  // namespace

ScaledProduct scaled_product(const BufferContext& c, ProductOf of, std::int64_t rows, const MatrixSplit& w,
                             int tp_rank) {
  const Fp8RecipeRow& recipe = c.rounding.properties();
  if (recipe.has_history()) return delayed_product(recipe, of, rows, w);
  const Splitter tp{c.tp, tp_rank};
  const auto x = [&] { return activation(c, rows, w.columns, recipe.operands, tp); };
  const auto dy = [&] { return activation(c, rows, w.rows, recipe.gradients, tp); };
  switch (of) {
    case ProductOf::output:
      return {x(), weight(c, of, w, tp)};
    case ProductOf::input_gradient:
      return {dy(), weight(c, of, w, tp)};
    case ProductOf::weight_gradient:
      if (c.rounding.transposed)
        return {transposed(c, rows, w.rows.count(), tp), transposed(c, rows, w.columns.count(), tp)};
      return {dy(), x()};
  }
  return {};
}

ScaledProduct scaled_experts(const BufferContext& c, ProductOf of, std::int64_t rows, const MatrixSplit& w,
                             int etp_rank) {
  const Splitter etp{c.etp, etp_rank};
  const bool output = of == ProductOf::output;
  const ScaledOperand a = output ? token_rows(c, rows, w.columns, c.rounding.properties().operands, etp)
                                 : token_rows(c, rows, w.rows, c.rounding.properties().gradients, etp);
  return {a, weight(c, of, w, etp), c.spec.E() / c.ep};
}

}  // namespace forge
