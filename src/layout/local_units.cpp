#include "layout/local_units.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace forge {

namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

bool is_vector(Role role) {
  switch (role) {
    case Role::token_table:
    case Role::position_table:
    case Role::qkv:
    case Role::attention_out:
    case Role::up:
    case Role::down:
    case Role::shared_up:
    case Role::shared_down:
    case Role::q_up:
    case Role::kv_up:
    case Role::expert_up:
    case Role::expert_down:
    case Role::q_down:
    case Role::kv_down:
    case Role::router:
    case Role::mtp_projection:
    case Role::output:
      return false;
    default:
      return true;
  }
}

bool is_split(Role role) {
  switch (role) {
    case Role::token_table:
    case Role::qkv:
    case Role::attention_out:
    case Role::up:
    case Role::down:
    case Role::shared_up:
    case Role::shared_down:
    case Role::q_up:
    case Role::kv_up:
    case Role::expert_up:
    case Role::expert_down:
    case Role::qkv_bias:
    case Role::up_bias:
    case Role::output:
      return true;
    default:
      return false;
  }
}

// A range of a tensor's rows or columns that a rank holds.
struct Part {
  int dim;
  Range range;
  bool copied = false;
};

// Rows of q, k, v in their own tensors.
std::vector<Part> qkv_rows(const ModelSpec& s, const LocalLayout& l) {
  const std::int64_t heads = s.H() / l.tp, copies = kv_copies(s, l.tp), kv = std::max<std::int64_t>(s.K() / l.tp, 1);
  const std::int64_t first_kv = l.tp_rank / copies * kv;
  const Range q{l.tp_rank * heads * s.D(), (l.tp_rank + 1) * heads * s.D()};
  const Range k{first_kv * s.D(), (first_kv + kv) * s.D()};
  return {{0, q}, {0, k, copies > 1}, {0, k, copies > 1}};
}

Range even_part(std::int64_t n, const LocalLayout& l) {
  return {n / l.tp * l.tp_rank, n / l.tp * (l.tp_rank + 1)};
}

// What this rank holds of parameter number `which` among the `count` of its role.
std::vector<Part> parts_of(const ModelSpec& s, const LocalLayout& l, Role role, std::size_t which, std::size_t count) {
  switch (role) {
    case Role::token_table:
    case Role::output:
      return {{0, vocabulary_rows(s, l.tp, l.tp_rank)}};
    case Role::qkv:
    case Role::qkv_bias: {
      auto parts = qkv_rows(s, l);
      if (count == 3) return {parts[which]};
      // One fused tensor: q's rows, then k's, then v's.
      const std::int64_t k0 = s.q_columns(), v0 = k0 + s.kv_columns();
      parts[1].range = {parts[1].range.begin + k0, parts[1].range.end + k0};
      parts[2].range = {parts[2].range.begin + v0, parts[2].range.end + v0};
      return parts;
    }
    case Role::attention_out:
      return {{1, even_part(s.o_columns(), l)}};
    case Role::q_up:
      return {{0, even_part(s.q_columns(), l)}};
    case Role::kv_up:
      return {{0, even_part(s.kv_up_columns(), l)}};
    case Role::up:
    case Role::up_bias:
      return {{0, even_part(s.F(), l)}};
    case Role::down:
      return {{1, even_part(s.F(), l)}};
    case Role::shared_up:
      return {{0, even_part(s.Fs(), l)}};
    case Role::shared_down:
      return {{1, even_part(s.Fs(), l)}};
    case Role::expert_up:
    case Role::expert_down: {
      // Parameters stand expert by expert.
      const std::size_t of_rank = count / static_cast<std::size_t>(l.ep);
      if (which / of_rank != static_cast<std::size_t>(l.ep_rank)) return {};
      const std::int64_t columns = s.Fe() / l.etp;
      return {{role == Role::expert_up ? 0 : 1, {columns * l.etp_rank, columns * (l.etp_rank + 1)}}};
    }
    default:
      return {};
  }
}

Box box_of(const Parameter& p, const Part& part) {
  Box box{Extents(p.shape.size(), 0), p.shape};
  const auto dim = static_cast<std::size_t>(part.dim);
  box.offset[dim] = part.range.begin;
  box.extent[dim] = part.range.size();
  return box;
}

class LocalUnitBuilder {
 public:
  LocalUnitBuilder(const ModelSpec& spec, const Unit& unit, const LocalLayout& layout)
      : spec_(spec), layout_(layout), unit_{unit.kind, unit.layer, unit.parameters, {}, 0, -1, -1, -1, {}, {}} {
    unit_.roles.fill(-1);
    for (const Parameter& p : unit.parameters) ++count_[static_cast<std::size_t>(p.role)];
  }

  LocalUnit build() {
    for (std::size_t i = 0; i < unit_.parameters.size(); ++i) add(i);
    const int shards = unit_.kind == UnitKind::experts ? layout_.expert_shards : layout_.shards;
    unit_.elements = rounded_up(unit_.elements, shards * unit_alignment);
    if (unit_.replicated_begin < 0) unit_.replicated_begin = unit_.elements;
    if (unit_.replicated_end < 0) unit_.replicated_end = unit_.elements;
    if (unit_.vectors_begin < 0) unit_.vectors_begin = unit_.elements;
    return std::move(unit_);
  }

 private:
  void align() { unit_.elements = rounded_up(unit_.elements, unit_alignment); }

  void start(Role role) {
    align();
    unit_.roles[static_cast<std::size_t>(role)] = unit_.elements;
    if (is_vector(role) && unit_.vectors_begin < 0) unit_.vectors_begin = unit_.elements;
    if (!is_split(role) && unit_.replicated_begin < 0) unit_.replicated_begin = unit_.elements;
    if (is_split(role) && unit_.replicated_begin >= 0 && unit_.replicated_end < 0)
      unit_.replicated_end = unit_.elements;
    require(is_vector(role) || unit_.vectors_begin < 0, "a unit's matrices must stand before its vectors");
    require(is_split(role) || unit_.replicated_end < 0, "what tensor parallelism replicates must stand together");
  }

  void add(std::size_t index) {
    const Parameter& p = unit_.parameters[index];
    const auto role = static_cast<std::size_t>(p.role);
    const std::size_t which = seen_[role]++;
    if (which == 0) start(p.role);
    const std::int64_t begin = unit_.elements;
    if (!is_split(p.role)) {
      push(index, {Extents(p.shape.size(), 0), p.shape}, layout_.tp_rank == 0);
    } else {
      for (const Part& part : parts_of(spec_, layout_, p.role, which, count_[role])) {
        const std::int64_t at = unit_.elements;
        push(index, box_of(p, part), !part.copied || layout_.tp_rank % kv_copies(spec_, layout_.tp) == 0);
        if (part.copied) note_copied({at, unit_.elements});
      }
    }
    pad_vocabulary(p, begin);
  }

  void push(std::size_t parameter, Box box, bool owned) {
    const std::int64_t size = box.size();
    unit_.pieces.push_back({parameter, std::move(box), unit_.elements, owned});
    unit_.elements += size;
  }

  // Every tp rank has equally many rows of the vocabulary; the last ones may be padding.
  void pad_vocabulary(const Parameter& p, std::int64_t begin) {
    if (p.role != Role::token_table && p.role != Role::output) return;
    unit_.elements = begin + local_spec(spec_, layout_.tp).V() * spec_.C();
  }

  void note_copied(const Range& range) {
    if (!unit_.copied.empty() && unit_.copied.back().end == range.begin)
      unit_.copied.back().end = range.end;
    else
      unit_.copied.push_back(range);
  }

  const ModelSpec& spec_;
  LocalLayout layout_;
  LocalUnit unit_;
  std::array<std::size_t, role_count> count_{}, seen_{};  // parameters of each role: all, and added so far
};

}  // namespace

int kv_copies(const ModelSpec& spec, int tp) {
  return std::max(1, tp / static_cast<int>(spec.K()));
}

ModelSpec local_spec(const ModelSpec& spec, int tp, int etp) {
  ModelSpec local = spec;
  local.options.heads = spec.H() / tp;
  local.options.kv_heads = std::max<std::int64_t>(spec.K() / tp, 1);
  local.options.ffn = spec.F() / tp;
  local.options.shared_expert_ffn = spec.Fs() / tp;
  local.options.expert_ffn = spec.Fe() / etp;
  local.options.vocabulary = (spec.V() + tp - 1) / tp;
  return local;
}

Range vocabulary_rows(const ModelSpec& spec, int tp, int tp_rank) {
  const std::int64_t rows = (spec.V() + tp - 1) / tp;
  return {std::min(rows * tp_rank, spec.V()), std::min(rows * (tp_rank + 1), spec.V())};
}

LocalUnit local_unit(const ModelSpec& spec, const Unit& unit, const LocalLayout& layout) {
  return LocalUnitBuilder(spec, unit, layout).build();
}

bool holds_token_table(const ModelSpec& spec, const StageContent& stage) {
  return stage.embedding || stage.mtp_layers > 0 || (stage.head && spec.options.tied_embeddings);
}

std::vector<LocalUnit> local_units(const ModelSpec& spec, const std::vector<Unit>& units,
                                   const std::vector<StageContent>& stages, const LocalLayout& layout) {
  auto any = [&](auto holds) { return std::any_of(stages.begin(), stages.end(), holds); };
  const bool embeds = any([](const StageContent& s) { return s.embedding; });
  const bool heads = any([](const StageContent& s) { return s.head; });
  const bool normalises = any([](const StageContent& s) { return s.final_norm(); });
  std::vector<LocalUnit> local;
  for (const Unit& unit : units) {
    bool here = false;
    switch (unit.kind) {
      case UnitKind::token_table:
        here = std::any_of(stages.begin(), stages.end(),
                           [&](const StageContent& s) { return holds_token_table(spec, s); });
        break;
      case UnitKind::position_table:
        here = embeds;
        break;
      case UnitKind::block:
      case UnitKind::experts:
        here = any([&](const StageContent& s) {
          return unit.layer >= s.layer(0) && unit.layer < s.layer(s.layers + s.mtp_layers);
        });
        break;
      case UnitKind::output:
        here = heads;
        break;
      case UnitKind::final_norm:
        here = normalises;
    }
    if (here) local.push_back(local_unit(spec, unit, layout));
  }
  return local;
}

std::vector<LocalUnit> whole_units(const ModelSpec& spec) {
  return local_units(spec, parameter_units(spec), {{true, 0, static_cast<int>(spec.L()), 0, true}}, {});
}

std::vector<Run> runs_of(const LocalUnit& unit, const Range& range) {
  std::vector<Run> runs;
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

}  // namespace forge
