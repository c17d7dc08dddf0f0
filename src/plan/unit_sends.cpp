#include "plan/unit_sends.hpp"

#include "layout/reductions.hpp"

namespace forge {

namespace {

Group matrices_group(bool experts) {
  return experts ? Group::expert_matrices : Group::matrices;
}

}  // namespace

std::vector<Sent> gather_sends(const BufferContext& c, const RankShare& share, std::size_t u) {
  const LocalUnit& unit = share.units[u];
  const Group group = unit.is_experts() ? Group::expert_parameter_shards : Group::parameter_shards;
  const bool coded = share.coded.has(u);
  std::vector<Sent> list{{group, Collective::all_gather, unit.shard().size(), coded ? DType::u8 : c.precision.compute}};
  if (coded && share.coded.units[u].others_of_shard > 0)
    list.push_back({group, Collective::all_gather, share.coded.units[u].others_of_shard, c.precision.compute});
  return list;
}

std::vector<Sent> amax_sends(const CodedUnits& coded) {
  std::vector<Sent> list;
  if (coded.dense > 0) list.push_back({Group::matrices, Collective::all_reduce, coded.dense, DType::f32});
  if (coded.experts > 0) list.push_back({Group::expert_matrices, Collective::all_reduce, coded.experts, DType::f32});
  return list;
}

std::vector<Sent> reduction_sends(const BufferContext& c, const LocalUnit& unit, bool last) {
  std::vector<Sent> list;
  const auto add = [&](const Reduction& r) {
    list.push_back({r.group, r.collective, r.part.size(), c.precision.accumulate});
  };
  if (unit.zero.reduce_each || last) add(reduction_over_shards(unit));
  if (last)
    for (const Reduction& r : step_reductions(unit)) add(r);
  return list;
}

std::vector<Sent> matrix_sends(const BufferContext& c, const MatrixRound& round, bool back) {
  std::int64_t count = 0;
  for (const HeldPart& part : round.held)
    if (!back && part.sends && part.owner != round.rank) count += part.elements.size();
  for (const MatrixStack& stack : round.stacks)
    for (const OwnedPart& part : stack.parts)
      if (back && part.holder != round.rank) count += part.count;
  return {{matrices_group(round.experts), Collective::send, count, c.precision.compute}};
}

std::vector<Sent> factored_sends(const RankShare& share, std::size_t u) {
  const FactoredUnit& unit = share.factored.units[u];
  const Group group = matrices_group(share.units[u].is_experts());
  return {{group, Collective::all_reduce, unit.moments + unit.tensor_count(), DType::f64},
          {group, Collective::all_reduce, unit.tensor_count(), DType::f64}};
}

}  // namespace forge
