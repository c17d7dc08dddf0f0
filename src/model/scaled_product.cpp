#include "model/scaled_product.hpp"

namespace forge {

namespace {

ScaleLines one_group(std::int64_t lines) {
  ScaleLines g;
  g.each = std::max<std::int64_t>(lines, 2);
  g.begin[1] = lines;
  g.base[1] = 1;
  return g;
}

ScaleLines each_line(std::int64_t lines) {
  ScaleLines g;
  g.count = lines;
  g.begin[1] = g.base[1] = lines;
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

// Blocks of each part as it stands in the whole tensor.
ScaleLines blocks(const MatrixLines& lines, int tp, int tp_rank) {
  ScaleLines g;
  g.each = fp8_block;
  g.parts = static_cast<std::int32_t>(lines.parts.size());
  for (std::size_t p = 0; p < lines.parts.size(); ++p) {
    const auto [count, copies] = lines.parts[p];
    const std::int64_t pieces = lines.split ? tp / copies : 1, piece = lines.split ? tp_rank / copies : 0;
    g.shift[p] = piece * count - g.begin[p];
    g.begin[p + 1] = g.begin[p] + count;
    g.base[p + 1] = g.base[p] + (pieces * count + fp8_block - 1) / fp8_block;
  }
  g.count = g.base[lines.parts.size()];
  return g;
}

ScaledOperand activation(const BufferContext& c, std::int64_t rows, const MatrixLines& columns, Fp8Format format,
                         int tp_rank) {
  const Microbatch& m = c.microbatch;
  const bool own = rows != m.rows(), split = columns.split && c.tp > 1;
  ScaledOperand x{rows, columns.count(), each_line(rows), one_group(columns.count()), format, split, false};
  if (c.fp8.recipe == Fp8Recipe::block) x.by_column = blocks(columns, c.tp, tp_rank);
  if (c.fp8.recipe == Fp8Recipe::current) {
    x.by_row = sequences(rows, own ? tp_rank * rows : 0, m.local_tokens(), m.sequences);
    x.over_tp = split || own;
    x.over_cp = m.cp > 1;
  }
  return x;
}

ScaledOperand weight(const BufferContext& c, ProductOf of, const MatrixSplit& w, int tp_rank) {
  const std::int64_t N = w.rows.count(), K = w.columns.count();
  const bool by_rows = w.rows.split && c.tp > 1, by_columns = w.columns.split && c.tp > 1;
  ScaledOperand x{N, K, one_group(N), one_group(K), Fp8Format::e4m3, by_rows || by_columns, false};
  if (c.fp8.recipe == Fp8Recipe::block) {
    x.by_row = blocks(w.rows, c.tp, tp_rank);
    x.by_column = blocks(w.columns, c.tp, tp_rank);
  } else if (c.fp8.recipe == Fp8Recipe::row && of == ProductOf::output) {
    x.by_row = each_line(N);
    x.over_tp = by_columns;
  } else if (c.fp8.recipe == Fp8Recipe::row) {
    x.by_column = each_line(K);
    x.over_tp = by_rows;
  }
  return x;
}

}  // namespace

ScaledProduct scaled_product(const BufferContext& c, ProductOf of, std::int64_t rows, const MatrixSplit& w,
                             int tp_rank) {
  const Fp8Format gradient = c.fp8.recipe == Fp8Recipe::block ? Fp8Format::e4m3 : Fp8Format::e5m2;
  const auto x = [&] { return activation(c, rows, w.columns, Fp8Format::e4m3, tp_rank); };
  const auto dy = [&] { return activation(c, rows, w.rows, gradient, tp_rank); };
  switch (of) {
    case ProductOf::output:
      return {x(), weight(c, of, w, tp_rank)};
    case ProductOf::input_gradient:
      return {dy(), weight(c, of, w, tp_rank)};
    case ProductOf::weight_gradient:
      return {dy(), x()};
  }
  return {};
}

}  // namespace forge
