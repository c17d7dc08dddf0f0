#include "layout/factored_moments.hpp"

#include <algorithm>

#include "core/partials.hpp"

namespace forge {

namespace {

// Parts of a piece of a tensor that stand in a range of the unit's buffer.
void add_parts(const LocalPiece& piece, std::size_t tensor, const Range& range, std::vector<FactoredPart>& parts) {
  const Range here = intersection(piece.range(), range);
  if (here.empty()) return;
  const bool matrix = piece.box.extent.size() >= 2;
  std::int64_t at = here.begin;
  for (const Box& box : boxes_of(piece.box.extent, {here.begin - piece.offset, here.end - piece.offset})) {
    FactoredPart part{tensor, 0, piece.box.offset.back() + box.offset.back(), 1, box.extent.back(), at};
    if (matrix) {
      part.row = piece.box.offset[0] + box.offset[0];
      part.rows = box.extent[0];
    }
    parts.push_back(part);
    at += box.size();
  }
}

// The experts of a unit that the ranks of an expert-parallel group hold.
Range experts_here(const LocalUnit& unit, const LocalLayout& layout) {
  std::int64_t experts = 0;
  for (const Parameter& parameter : unit.parameters) experts = std::max(experts, parameter.expert + 1);
  return {experts / layout.ep * layout.ep_rank, experts / layout.ep * (layout.ep_rank + 1)};
}

FactoredUnit factored_unit(const LocalUnit& unit, const LocalLayout& layout) {
  FactoredUnit factored;
  const Range experts = experts_here(unit, layout);
  std::vector<std::size_t> numbers(unit.parameters.size());
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    const Parameter& parameter = unit.parameters[p];
    if (parameter.expert >= 0 && (parameter.expert < experts.begin || parameter.expert >= experts.end)) continue;
    numbers[p] = factored.tensors.size();
    FactoredTensor tensor{p, 0, 0, parameter.elements(), factored.moments};
    if (parameter.shape.size() >= 2) {
      tensor.rows = parameter.shape[0];
      tensor.columns = parameter.shape[1];
    }
    factored.moments += tensor.rows + tensor.columns;
    factored.tensors.push_back(tensor);
  }
  for (const LocalPiece& piece : unit.pieces) {
    // Of copies over tp one counts; of a token table on two stages each stage counts for itself.
    const std::size_t tensor = numbers[piece.parameter];
    if (piece.owned) add_parts(piece, tensor, unit.shard(), factored.counted);
    add_parts(piece, tensor, unit.state(), factored.held);
  }
  const int rank_in_unit = unit.is_experts() ? layout.etp_rank : layout.tp_rank;
  factored.writes = rank_in_unit == 0 && unit.zero.shard == 0 && unit.zero.replica == 0 && !unit.tied_copy;
  return factored;
}

}  // namespace

FactoredMoments factored_moments(const std::vector<LocalUnit>& units, const LocalLayout& layout) {
  FactoredMoments all;
  for (const LocalUnit& unit : units) {
    FactoredUnit& factored = all.units.emplace_back(factored_unit(unit, layout));
    factored.first_moment = all.moments;
    all.moments += factored.moments;
  }
  return all;
}

void FactoredBuffers::list(BufferLister& l, const FactoredUnit& unit) {
  std::int64_t rows = 1, columns = 1, chunks = 1;
  for (const auto* parts : {&unit.counted, &unit.held})
    for (const FactoredPart& part : *parts) {
      rows = std::max(rows, part.rows);
      columns = std::max(columns, part.columns);
      chunks = std::max(chunks, norm_partial_rows(part.rows));
    }
  l.add(sums, "sums of squares", unit.moments + unit.tensor_count(), 1);
  l.add(updates, "squares of updates", unit.tensor_count(), 1);
  l.add(means, "means of moments", unit.tensor_count(), 1);
  l.add(this->rows, "partial sums of rows", rows, 1);
  l.add(squares, "partial sums of squares", sum_partials, 1);
  l.add(this->columns, "partial sums of columns", chunks, columns);
}

}  // namespace forge
