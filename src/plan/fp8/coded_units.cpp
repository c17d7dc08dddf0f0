#include "plan/fp8/coded_units.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "fp8/kernel_names.hpp"
#include "nn/block.plan.hpp"

namespace forge {

void resolve_coded(RoundingOptions& rounding, const Deck& deck, const MeshShape& mesh) {
  if (!rounding.on || !gathers_codes(deck) || deck.train.zero_stage < 3) return;
  if (mesh.dense_shards() > 1) rounding.coded_end = std::min(deck.model.layers, rounding.end_block);
  if (rounding.experts && mesh.expert_shards() > 1) rounding.coded_experts_end = rounding.end_block;
}
bool gathers_codes(const Deck& deck) {
  return deck.train.fp8_gather;
}

void check_rounded_experts(const ModelSpec& spec, const RoundingOptions& rounding) {
  bool found = !rounding.on || !rounding.experts;
  for (std::int64_t layer = 0; layer < spec.L() + spec.options.mtp_depth; ++layer)
    found = found || (rounding.has_block(layer) && spec.is_moe(layer));
  if (!found)
    throw BadInput(
        "train.fp8_experts = true, but no block in fp8 has experts; legal: false, or a smaller "
        "train.fp8_first_layers_bf16 or train.fp8_last_layers_bf16");
}

namespace {

// Finds the members of a unit's struct of parameters: their Views point to marks, one for each.
class MemberFinder {
 public:
  MemberFinder(const BufferContext& c, const LocalUnit& unit) : unit_(unit), marks_(unit.groups.size()) {
    std::vector<ParameterGroup> groups = unit.groups;
    for (std::size_t g = 0; g < groups.size(); ++g) groups[g].offset = static_cast<std::int64_t>(g);
    const UnitPart<const float> all(marks_.data());
    ParameterLister lister(c.spec, unit.kind, unit.layer, groups, all, all);
    members.list(lister);
    lister.finish();
  }

  BlockParameters<const float> members;

  // Null: the unit doesn't have it.
  const ParameterGroup* find(const float* mark) const {
    return mark ? &unit_.groups[to_size(mark - marks_.data())] : nullptr;
  }

 private:
  const LocalUnit& unit_;
  std::vector<float> marks_;
};

struct Found {
  const float* mark;
  MatrixSplit split;
};

// The weights of a block's products, or of its experts'.
std::vector<Found> products_of(const BufferContext& c, const LocalUnit& unit, const BlockParameters<const float>& w) {
  const ModelSpec& s = c.spec;
  if (unit.is_experts())
    return {{w.moe.experts.up.data, expert_up_split(s, s.Fe())},
            {w.moe.experts.down.data, expert_down_split(s, s.Fe())}};
  std::vector<Found> found;
  if (s.mla()) {
    const LatentSplits splits = latent_splits(s);
    found = {{w.latent.q_up.data, splits.q_up},
             {w.latent.kv_up.data, splits.kv_up},
             {w.latent.q_down.data, splits.q_down},
             {w.latent.kv_down.data, splits.kv_down},
             {w.latent.out.data, attention_out_split(s, unit.layer)}};
  } else if (s.linear(unit.layer)) {
    found = {{w.delta.in.data, delta_in_split(s, true)}, {w.delta.out.data, attention_out_split(s, unit.layer)}};
  } else {
    found = {{w.attention.qkv.data, qkv_split(c)}, {w.attention.out.data, attention_out_split(s, unit.layer)}};
  }
  const bool moe = s.is_moe(unit.layer);
  const MlpParameters<const float>& mlp = moe ? w.moe.shared : w.mlp;
  const std::int64_t ffn = moe ? s.Fs() : s.F();
  found.push_back({mlp.up.data, mlp_up_split(s, ffn)});
  found.push_back({mlp.down.data, mlp_down_split(s, ffn)});
  return found;
}

CodedUnit coded_unit(const BufferContext& c, const LocalUnit& unit, int tp_rank, int etp_rank) {
  CodedUnit coded;
  const MemberFinder finder(c, unit);
  for (const auto& [mark, split] : products_of(c, unit, finder.members)) {
    const ParameterGroup* group = finder.find(mark);
    if (!group) continue;
    const ScaledProduct p = unit.is_experts() ? scaled_experts(c, ProductOf::output, 1, split, etp_rank)
                                              : scaled_product(c, ProductOf::output, 1, split, tp_rank);
    const std::int64_t lines = unit.is_experts() ? split.rows.count() : counted_lines(split.rows, tp_rank);
    coded.matrices.push_back({split.product, group->offset, p.matrices(), p.b, lines});
    const std::int64_t elements = coded.matrices.back().range().size();
    const bool first_rows = mark == finder.members.delta.in.data && elements < group->elements;
    require(first_rows || elements == group->elements, "a coded weight is not its place in the unit");
  }
  std::sort(coded.matrices.begin(), coded.matrices.end(),
            [](const CodedMatrices& a, const CodedMatrices& b) { return a.offset < b.offset; });
  std::int64_t at = 0;
  for (const CodedMatrices& m : coded.matrices) {
    if (m.offset > at) coded.others.push_back({at, m.offset});
    at = m.range().end;
  }
  if (at < unit.elements) coded.others.push_back({at, unit.elements});
  const std::int64_t shard = unit.elements / unit.zero.shards;
  for (int i = 0; i < unit.zero.shards; ++i) {
    std::int64_t here = 0;
    for (const Range& range : coded.others) here += intersection(range, {i * shard, (i + 1) * shard}).size();
    coded.others_of_shard = std::max(coded.others_of_shard, here);
  }
  return coded;
}

}  // namespace

CodedUnits coded_units(const BufferContext& c, const std::vector<LocalUnit>& units, int tp_rank, int etp_rank) {
  CodedUnits all;
  const bool keeps = c.rounding.keeps_amaxes();
  if (!keeps && c.rounding.coded_end == 0 && c.rounding.coded_experts_end == 0) return all;
  all.units.resize(units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    const LocalUnit& unit = units[u];
    const bool dense = unit.kind == UnitKind::block;
    const bool gathered = dense ? c.rounding.has_coded_block(unit.layer)
                                : unit.kind == UnitKind::experts && c.rounding.has_coded_experts(unit.layer);
    if (!gathered && !(dense && keeps && c.rounding.has_block(unit.layer))) continue;
    CodedUnit& coded = all.units[u] = coded_unit(c, unit, tp_rank, etp_rank);
    coded.gathered = gathered;
    std::int64_t& next = dense ? all.dense : all.experts;
    for (CodedMatrices& m : coded.matrices) {
      m.first = next;
      next += m.groups();
    }
    if (!gathered) continue;
    all.codes = std::max(all.codes, unit.elements);
    all.others = std::max(all.others, unit.zero.shards * coded.others_of_shard);
  }
  for (std::size_t u = 0; u < units.size(); ++u)
    if (units[u].kind == UnitKind::experts)
      for (CodedMatrices& m : all.units[u].matrices) m.first += all.dense;
  return all;
}

void list_weight_amaxes(Segments& list, const CodedUnits& coded, const std::vector<LocalUnit>& units) {
  for (std::size_t u = 0; u < coded.units.size(); ++u)
    for (const CodedMatrices& m : coded.units[u].matrices) {
      const Range here = intersection(m.range(), units[u].state());
      if (here.empty()) continue;
      const auto number = static_cast<std::int64_t>(size_of(list.c.precision.compute));
      list.add(RowKernel{rounding_kernels::amax, here.size(), 1, here.size() * number, 0});
    }
}

}  // namespace forge
