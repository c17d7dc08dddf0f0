#include "layout/local_units.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "nn/units.plan.hpp"

namespace forge {

namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

class LocalUnitBuilder {
 public:
  LocalUnitBuilder(const ModelSpec& spec, const Unit& unit, const LocalLayout& layout)
      : spec_(spec), layout_(layout), unit_{unit.kind, unit.layer, unit.parameters, {}, 0, -1, -1, -1, {}, {}, {}, {}} {
    unit_.frozen = unit.frozen;
    unit_.groups.resize(unit.groups);
    unit_.zero = unit_.is_experts() ? layout.expert_zero : layout.zero;
  }

  LocalUnit build() {
    for (std::size_t i = 0; i < unit_.parameters.size(); ++i) add(i);
    unit_.elements = rounded_up(unit_.elements, unit_.zero.shards * unit_alignment);
    if (unit_.replicated_begin < 0) unit_.replicated_begin = unit_.elements;
    if (unit_.replicated_end < 0) unit_.replicated_end = unit_.elements;
    if (unit_.vectors_begin < 0) unit_.vectors_begin = unit_.elements;
    return std::move(unit_);
  }

 private:
  void start(const Parameter& p) {
    const bool is_split = !p.split.empty(), is_vector = holds_vectors(p.section);
    ParameterGroup& group = unit_.groups[p.group];
    if (group.offset >= 0) return;
    const std::int64_t at = unit_.elements = rounded_up(unit_.elements, unit_alignment);
    group = {at, 0, is_vector};
    if (is_vector && unit_.vectors_begin < 0) unit_.vectors_begin = at;
    if (!is_split && unit_.replicated_begin < 0) unit_.replicated_begin = at;
    if (is_split && unit_.replicated_begin >= 0 && unit_.replicated_end < 0) unit_.replicated_end = at;
    require(is_vector || unit_.vectors_begin < 0, "a unit's matrices must stand before its vectors");
    require(is_split || unit_.replicated_end < 0, "what tensor parallelism replicates must stand together");
  }

  void add(std::size_t index) {
    const Parameter& p = unit_.parameters[index];
    start(p);
    if (p.expert >= 0 && p.expert / (spec_.E() / layout_.ep) != layout_.ep_rank) return;
    const Box whole{Extents(p.shape.size(), 0), p.shape};
    const int ranks = p.expert >= 0 ? layout_.etp : layout_.tp,
              rank = p.expert >= 0 ? layout_.etp_rank : layout_.tp_rank;
    if (p.split.empty()) return push(index, whole, p.elements(), rank == 0);
    for (const Split& split : p.split) {
      const auto dim = to_size(split.dim);
      const SplitPiece piece = piece_of(split, p.shape[dim], ranks, rank);
      Box box = whole;
      box.offset[dim] = piece.range.begin;
      box.extent[dim] = piece.range.size();
      const std::int64_t at = unit_.elements;
      push(index, box, p.elements() / p.shape[dim] * piece.extent, rank % piece.copies == 0);
      if (piece.copies > 1) append(unit_.copied, {at, unit_.elements});
    }
  }

  // `elements`: with padding.
  void push(std::size_t parameter, const Box& box, std::int64_t elements, bool owned) {
    unit_.pieces.push_back({parameter, box, unit_.elements, owned});
    unit_.elements += elements;
    unit_.groups[unit_.parameters[parameter].group].elements += elements;
  }

  const ModelSpec& spec_;
  LocalLayout layout_;
  LocalUnit unit_;
};

}  // namespace

SplitPiece piece_of(const Split& split, std::int64_t extent, int ranks, int rank) {
  const std::int64_t shared = split.extent > 0 ? split.extent : extent - split.begin;
  const std::int64_t granules = shared / split.granule;
  const int pieces = split.copies && granules < ranks ? static_cast<int>(granules) : ranks, copies = ranks / pieces;
  require(granules * split.granule == shared, "a split cuts a granule");
  require(pieces * copies == ranks, "a split's granules don't divide the ranks that copy them");
  const Range part = flat_shard(shared, pieces, rank / copies, split.granule);
  return {{split.begin + part.begin, split.begin + part.end}, flat_shard_size(shared, pieces, split.granule), copies};
}

int kv_copies(const ModelSpec& spec, int tp) {
  return std::max(1, tp / static_cast<int>(spec.K()));
}

ModelSpec local_spec(const ModelSpec& spec, int tp, int etp) {
  ModelSpec local = spec;
  local.options.heads = spec.H() / tp;
  local.options.kv_heads = std::max<std::int64_t>(spec.K() / tp, 1);
  local.options.linear_key_heads = spec.options.linear_key_heads / tp;
  local.options.linear_value_heads = spec.options.linear_value_heads / tp;
  local.options.ffn = spec.F() / tp;
  local.options.shared_expert_ffn = spec.Fs() / tp;
  local.options.expert_ffn = spec.Fe() / etp;
  local.options.vocabulary = (spec.V() + tp - 1) / tp;
  return local;
}

Range vocabulary_rows(const ModelSpec& spec, int tp, int tp_rank) {
  return flat_shard(spec.V(), tp, tp_rank);
}

std::int64_t fresh_elements(const LocalUnit& unit) {
  const bool is_table = unit.kind == UnitKind::token_table || unit.kind == UnitKind::position_table;
  return is_table ? 0 : unit.vectors_begin;
}

LocalUnit local_unit(const ModelSpec& spec, const Unit& unit, const LocalLayout& layout) {
  return LocalUnitBuilder(spec, unit, layout).build();
}

bool holds_token_table(const ModelSpec& spec, const StageContent& stage) {
  return stage.embedding || stage.mtp_layers > 0 || (stage.head && spec.options.tied_embeddings);
}

std::vector<LocalUnit> local_units(const ModelSpec& spec, const std::vector<Unit>& units,
                                   const std::vector<StageContent>& stages, const LocalLayout& layout) {
  const auto holds = [&](const StageContent& s, const Unit& unit) {
    switch (unit.kind) {
      case UnitKind::token_table:
        return holds_token_table(spec, s);
      case UnitKind::position_table:
        return s.embedding;
      case UnitKind::block:
      case UnitKind::experts:
      case UnitKind::adapter:
      case UnitKind::expert_adapter:
        return unit.layer >= s.layer(0) && unit.layer < s.layer(s.layers + s.mtp_layers);
      case UnitKind::output:
        return s.head;
      case UnitKind::final_norm:
        return s.final_norm();
    }
    return false;
  };
  std::vector<LocalUnit> local;
  for (const Unit& unit : units)
    if (std::any_of(stages.begin(), stages.end(), [&](const StageContent& s) { return holds(s, unit); }))
      local.push_back(local_unit(spec, unit, layout));
  return local;
}

std::vector<LocalUnit> whole_units(const ModelSpec& spec) {
  return local_units(spec, parameter_units(spec), {{true, 0, static_cast<int>(spec.L()), 0, true}}, {});
}

std::vector<ElementRun> runs_of(const LocalUnit& unit, const Range& range) {
  std::vector<ElementRun> runs;
  for (const LocalPiece& piece : unit.pieces) {
    const Extents& shape = unit.parameters[piece.parameter].shape;
    const bool columns = shape.size() == 2 && piece.box.extent[1] < shape[1];
    const std::int64_t row = columns ? piece.box.extent[1] : piece.box.size();
    const std::int64_t rows = columns ? piece.box.extent[0] : (piece.box.size() > 0 ? 1 : 0);
    const std::int64_t stride = columns ? shape[1] : 0, first = flat_index(shape, piece.box.offset);
    std::int64_t r = row > 0 ? std::clamp<std::int64_t>((range.begin - piece.offset) / row, 0, rows) : rows;
    for (; r < rows && piece.offset + r * row < range.end; ++r) {
      const Range here = intersection({piece.offset + r * row, piece.offset + (r + 1) * row}, range);
      if (here.size() > 0)
        runs.push_back({&piece, here.begin, first + r * stride + here.begin - piece.offset - r * row, here.size()});
    }
  }
  return runs;
}

std::vector<Range> owned_ranges(const LocalUnit& unit) {
  std::vector<Range> ranges;
  if (unit.tied_copy) return ranges;
  for (const LocalPiece& piece : unit.pieces)
    if (piece.owned) append(ranges, intersection(piece.range(), unit.shard()));
  return ranges;
}

std::vector<Range> counted_ranges(const LocalUnit& unit) {
  return unit.zero.replica == 0 ? owned_ranges(unit) : std::vector<Range>{};
}

}  // namespace forge
