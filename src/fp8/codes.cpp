#include "fp8/codes.hpp"

#include "config/fp8_format.hpp"
#include "config/fp8_recipe.hpp"

namespace forge {

namespace {

std::int32_t slots_of(std::int64_t lines) {
  return static_cast<std::int32_t>((lines + scale_width - 1) / scale_width);
}

}  // namespace

bool multiplies_codes(const Deck& deck, int capability) {
  const TrainDeck& t = deck.train;
  if (t.precision != PrecisionName::fp8 || t.fp8_carrier != Fp8Carrier::bf16 || capability < 89) return false;
  if (properties_of(t.fp8_recipe).operands != Fp8Format::e4m3) return false;
  return code_scaling(t.fp8_recipe) == CodeScaling::tensor || capability == 90;
}

std::string refusal_of_scales(Fp8Recipe recipe, int cublas_version) {
  if (cublas_version >= (code_scaling(recipe) == CodeScaling::tensor ? 1 : 120900)) return "";
  return "train.fp8_recipe = " + std::string(properties_of(recipe).word) +
         ": this build's cuBLAS has no products with such scales; legal: current or delayed, or a build with CUDA 12.9 "
         "or later (docs/start.md)";
}

CodeScaling code_scaling(Fp8Recipe recipe) {
  const WeightScale weights = properties_of(recipe).weights;
  return weights == WeightScale::line    ? CodeScaling::line
         : weights == WeightScale::block ? CodeScaling::slot
                                         : CodeScaling::tensor;
}

Fp8Slots fp8_slots(const ScaleLines& depth) {
  Fp8Slots s;
  s.depth = depth;
  s.each = std::max(slots_of(depth.each), 1);
  std::int32_t next = 0;
  for (int p = 0; p < depth.parts; ++p) {
    const std::int64_t begin = depth.begin[p], end = depth.begin[p + 1];
    s.first[p] = next;
    if (end == begin) continue;
    s.group[p] = static_cast<std::int32_t>(depth.group_of(begin));
    const ScaleLines::Range head = depth.lines_of(s.group[p]), tail = depth.lines_of(depth.group_of(end - 1));
    s.front[p] = slots_of(head.end - head.begin);
    next += s.front[p];
    const auto later = static_cast<std::int32_t>(depth.group_of(end - 1)) - s.group[p];
    if (later > 0) next += (later - 1) * s.each + slots_of(tail.end - tail.begin);
  }
  for (int p = depth.parts; p < 4; ++p) s.first[p] = next;
  return s;
}

namespace {

// Whether each 128 lines, counted from the first, are of one group.
bool are_blocks(const ScaleLines& lines) {
  if (lines.each != scale_width || lines.period != 0) return false;
  for (int p = 0; p < lines.parts; ++p)
    if (lines.begin[p] % scale_width != 0 || lines.shift[p] % scale_width != 0) return false;
  return true;
}

std::int64_t factors_of(const ScaledOperand& x, bool sums_rows, CodeScaling scaling) {
  const ScaleLines &lines = sums_rows ? x.by_column : x.by_row, &depth = sums_rows ? x.by_row : x.by_column;
  return factor_layout(sums_rows ? x.columns : x.rows, lines, fp8_slots(depth), scaling).count();
}

}  // namespace

FactorLayout factor_layout(std::int64_t line_count, const ScaleLines& lines, const Fp8Slots& slots,
                           CodeScaling scaling) {
  switch (scaling) {
    case CodeScaling::tensor:
      return {FactorOrder::groups, lines.count, slots.depth.count};
    case CodeScaling::line:
      return {FactorOrder::lines, 1, line_count};
    case CodeScaling::slot:
      if (are_blocks(lines)) return {FactorOrder::blocks, slots_of(line_count), (slots.count() + 3) / 4 * 4};
      return {FactorOrder::slots, slots.count(), line_count};
  }
  return {};
}

void add_code_bytes(ScaledProduct& p, const BufferContext& c, ProductOf of, std::int64_t rows, const MatrixSplit& w) {
  for (int rank = 0; rank < c.tp; ++rank) {
    const ScaledProduct here = scaled_product(c, of, rows, w, rank);
    p.a_codes = std::max(p.a_codes, code_bytes(here.a, sums_rows_of_a(of)));
    p.b_codes = std::max(p.b_codes, code_bytes(here.b, sums_rows_of_b(of)));
    const CodeScaling scaling = code_scaling(c.rounding.recipe);
    p.factors = std::max(
        p.factors, factors_of(here.a, sums_rows_of_a(of), scaling) + factors_of(here.b, sums_rows_of_b(of), scaling));
  }
}

}  // namespace forge
