#pragma once

#include <algorithm>
#include <cstdint>

#include "core/collectives.hpp"
#include "core/macros.hpp"
#include "fp8/rounding_counts.hpp"
#include "model/buffers.hpp"

namespace forge {

// Which numbers of a matrix share a scale in FP8, as a pure function of the product and the rank: the recipes. Whoever
// runs a product asks here, and so do those who plan its memory and collectives.
//
// A scale belongs to a group of rows times a group of columns, counted in the whole matrix, so that no layout changes
// it: each rank takes the largest magnitudes (amax) of the numbers that it has, and the largest of all ranks is taken.
//   current: activations and gradients by sequence, a weight as a whole
//   delayed: activations, gradients and a weight as a whole, of the whole batch: from the steps before, so that no
//        rank is asked (fp8/amax_history.hpp)
//   row: activations and gradients by token; a weight by row of the product's result, which is its row forward, and
//        its column in the gradient of the input
//   block: 1 x 128 of activations and gradients, 128 x 128 of a weight (DeepSeek-V3, arXiv:2412.19437, 3.3), of each
//        of the tensors that one product reads together
// Rows of routed experts are grouped by expert, wherever ep sends them: an operand with a scale by sequence elsewhere
// has one by token, and each expert's matrix counts for itself.

enum class Fp8Format : std::uint8_t;  // config/fp8_format.hpp

inline constexpr std::int64_t scale_width = 128;

// Rows of a weight that this rank counts: of heads that tp neighbours share only the first of them.
inline std::int64_t counted_lines(const MatrixLines& lines, int tp_rank) {
  std::int64_t count = 0;
  for (const MatrixLines::Part& part : lines.parts) {
    if (tp_rank % part.copies != 0) break;  // k and v stand behind q
    count += part.count;
  }
  return count;
}

// Groups of rows, or of columns: line i of part p, which begins at begin[p], has group base[p] + (i + shift[p]) / each.
// With a period there is one part, and groups begin anew in each period, as groups of a sequence's rows do.
struct ScaleLines {
  std::int64_t count = 1;  // groups of the whole matrix, or of this rank's part where others never share one
  std::int64_t each = 1;
  std::int32_t parts = 1;
  std::int64_t begin[4] = {0, 0, 0, 0}, shift[3] = {0, 0, 0}, base[4] = {0, 0, 0, 0};  // the last: where they end
  std::int64_t period = 0, groups_each = 0;  // lines and groups of a period; 0: none

  // Whether each of so many lines is a group of its own.
  bool alone(std::int64_t lines) const {
    return each == 1 && period == 0 && parts == 1 && shift[0] == 0 && count == lines;
  }

  FORGE_INLINE std::int64_t group_of(std::int64_t i) const {
    const int p = parts > 2 && i >= begin[2] ? 2 : parts > 1 && i >= begin[1] ? 1 : 0;
    // A GPU divides numbers of 64 bits in a hundred instructions; a matrix has no 2^32 lines.
    const auto line = static_cast<std::uint32_t>(i + shift[p]), width = static_cast<std::uint32_t>(each);
    if (period == 0) return base[p] + line / width;
    const std::uint32_t before = line / static_cast<std::uint32_t>(period);
    return before * groups_each + (line - before * static_cast<std::uint32_t>(period)) / width;
  }
  // The lines of a group that this rank has: [begin, end), perhaps empty.
  struct Range {
    std::int64_t begin, end;
  };
  FORGE_INLINE Range lines_of(std::int64_t group) const {
    const int p = parts > 2 && group >= base[2] ? 2 : parts > 1 && group >= base[1] ? 1 : 0;
    std::int64_t from = (group - base[p]) * each - shift[p], to = from + each;
    if (period > 0) {
      const std::int64_t before = static_cast<std::uint32_t>(group) / static_cast<std::uint32_t>(groups_each);
      const std::int64_t end = (before + 1) * period - shift[0];
      from = before * period + (group - before * groups_each) * each - shift[0];
      to = from + each < end ? from + each : end;
    }
    const std::int64_t least = begin[p], most = begin[p + 1];
    const std::int64_t first = from > least ? from : least, last = to < most ? to : most;
    return {first, last > first ? last : first};
  }
};

// A group for each line.
ScaleLines lines_alone(std::int64_t lines);

// An operand (rows, columns) as it stands in memory.
struct ScaledOperand {
  std::int64_t rows = 0, columns = 0;
  ScaleLines by_row, by_column;
  Fp8Format format{};
  bool over_tp = false, over_cp = false;  // ranks whose numbers share scales; of experts, etp for tp

  std::int64_t groups() const { return by_row.count * by_column.count; }
};

// The operands of a product, the activation or output gradient first; of experts, `b` is each one's matrix, and `a` has
// the rows of all of them.
struct ScaledProduct {
  ScaledOperand a, b;
  std::int64_t experts = 0;  // on this rank; 0: a product of every token's
  bool coded = false;        // b is a weight that was gathered as codes: it is rounded, and its amaxes are known
  // The amaxes that were found before (fp8/saved_amaxes.hpp).
  bool knows_a = false, knows_b = false;
  // Where a plan lists it, bytes of the operands' codes, on whichever tp rank has most; 0: numbers are multiplied.
  std::int64_t a_codes = 0, b_codes = 0;
  std::int64_t factors = 0;  // … and 1 / scale of both

  std::int64_t matrices() const { return std::max<std::int64_t>(experts, 1); }
  Group splitters() const { return experts > 0 ? Group::etp : Group::tp; }
  std::int64_t b_groups() const { return matrices() * b.groups(); }
  std::int64_t groups() const { return a.groups() + b_groups(); }
  // Amaxes that the ranks of a group find together.
  std::int64_t over_tp() const {
    return (a.over_tp && takes_a() ? a.groups() : 0) + (b.over_tp && takes_b() ? b_groups() : 0);
  }
  std::int64_t over_cp() const {
    return (a.over_cp && takes_a() ? a.groups() : 0) + (b.over_cp && takes_b() ? b_groups() : 0);
  }
  bool takes_a() const { return !knows_a; }
  bool takes_b() const { return !knows_b && !coded; }
};
// Whether the recipe rounds this product's operands: weight gradients only with one scale for many rows, since their
// sums run over rows. The transposed copies of `block` have one for each column of 128 rows of a sequence.
bool rounds_product(const RoundingOptions& rounding, ProductOf of);
// `rows` of activations: R, or S, which are this tp rank's of them. Extents and counts don't depend on the tp rank.
ScaledProduct scaled_product(const BufferContext& c, ProductOf of, std::int64_t rows, const MatrixSplit& w,
                             int tp_rank);
// `rows` that this rank's experts got. Weight gradients aren't rounded: their sums run over rows, which have scales of
// their own in every recipe.
inline bool rounds_experts(const RoundingOptions& rounding, ProductOf of) {
  return rounding.experts && of != ProductOf::weight_gradient;
}
ScaledProduct scaled_experts(const BufferContext& c, ProductOf of, std::int64_t rows, const MatrixSplit& w,
                             int etp_rank);

// Whether amaxes of activations and gradients come from amaxes of whole rows, which the kernel that makes such rows can
// leave (RowAmaxes of kernels/kernels.hpp).
bool takes_amaxes_of_rows(const RoundingOptions& rounding);

// The workspace of the largest products of a list: copies of their operands, and amaxes.
struct RoundingSizes {
  std::int64_t a = 0, b = 0, a_codes = 0, b_codes = 0, factors = 0, groups = 0, gathered = 0;

  void cover(const BufferContext& c, const ScaledProduct& p) {
    if (p.b_codes == 0) {
      a = std::max(a, p.a.rows * p.a.columns);
      b = std::max(b, p.coded ? 0 : p.matrices() * p.b.rows * p.b.columns);
    }
    a_codes = std::max(a_codes, p.a_codes);
    b_codes = std::max(b_codes, p.b_codes);
    factors = std::max(factors, p.factors);
    groups = std::max(groups, p.groups());
    gathered = std::max({gathered, (p.experts > 0 ? c.etp : c.tp) * p.over_tp(), c.microbatch.cp * p.over_cp()});
  }
};
// Workspace of a rank's products in FP8, for the whole run.
template <class T>
struct RoundingBuffers {
  View<T, 1> a, b;  // operands, rounded
  View<std::uint8_t, 1> a_codes, b_codes;
  View<float, 1> factors, amax, gathered;

  void list(BufferLister& l, const RoundingSizes& sizes) {
    if (sizes.groups == 0) return;
    if (sizes.a > 0) l.add(a, "rounded activations", sizes.a, 1);
    if (sizes.b > 0) l.add(b, "rounded weights", sizes.b, 1);
    if (sizes.a_codes > 0) l.add(a_codes, "codes of activations", sizes.a_codes, 1);
    if (sizes.b_codes > 0) l.add(b_codes, "codes of weights", sizes.b_codes, 1);
    if (sizes.factors > 0) l.add(factors, "factors of codes", sizes.factors, 1);
    l.add(amax, "largest magnitudes", sizes.groups, 1);
    if (sizes.gathered > 0) l.add(gathered, "largest magnitudes of other ranks", sizes.gathered, 1);
  }
};

}  // namespace forge
