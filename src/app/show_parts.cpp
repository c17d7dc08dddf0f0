#include "app/show_parts.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "plan/rank_memory.hpp"
#include "plan/task_segments.hpp"
#include "plan/tasks.hpp"
#include "plan/traffic.hpp"
#include "schedule/repetition.hpp"

namespace forge {

namespace {

// Layers whose units have the same parameters: of the model or of multi-token prediction, with or without experts.
bool same_kind(const ModelSpec& spec, const Unit& a, const Unit& b) {
  return a.kind == b.kind && a.frozen == b.frozen && (a.layer >= spec.L()) == (b.layer >= spec.L()) &&
         spec.is_moe(a.layer) == spec.is_moe(b.layer) && spec.linear(a.layer) == spec.linear(b.layer);
}

using GroupTraffic = std::vector<std::pair<std::string, Traffic>>;

// Adds the traffic of `times` repetitions: `more` is the first shard's with one of them more. All shards send alike.
void add_repeated(std::vector<GroupTraffic>& shards, const GroupTraffic& more, std::int64_t times) {
  const GroupTraffic once = shards.front();
  for (GroupTraffic& traffic : shards)
    for (std::size_t g = 0; g < traffic.size(); ++g)
      for (std::size_t c = 0; c < to_size(collective_count); ++c) {
        Traffic& sum = traffic[g].second;
        sum.bytes[c] += times * (more[g].second.bytes[c] - once[g].second.bytes[c]);
        sum.calls[c] += times * (more[g].second.calls[c] - once[g].second.calls[c]);
      }
}

// All shards of a stage; of very many, some from the first to the last: units times shards are what takes time.
std::vector<int> shards_to_look_at(const RunSetup& s) {
  constexpr std::int64_t most_reductions = 1'000'000;
  const std::int64_t all = s.mesh.dense_shards(), units = static_cast<std::int64_t>(s.units.size());
  const std::int64_t count = std::min(all, std::max<std::int64_t>(2, most_reductions / units));
  std::vector<int> shards;
  for (std::int64_t i = 0; i < count; ++i)
    shards.push_back(static_cast<int>(count == 1 ? 0 : i * (all - 1) / (count - 1)));
  return shards;
}

}  // namespace

std::vector<AlikeUnits> alike_units(const RunSetup& s) {
  std::vector<AlikeUnits> all;
  for (const Unit& unit : s.units) {
    const auto like = [&](const AlikeUnits& other) {
      return other.unit->layer >= 0 && same_kind(s.spec, unit, *other.unit);
    };
    if (const auto same = std::find_if(all.begin(), all.end(), like); unit.layer >= 0 && same != all.end()) {
      same->layers.push_back(unit.layer);
      continue;
    }
    AlikeUnits alike;
    alike.unit = &unit;
    if (unit.layer >= 0) alike.layers = {unit.layer};
    const std::string first = unit.name + ".experts.0.";
    for (const Parameter& p : unit.parameters)
      if (!is_of_experts(unit.kind) || p.name.compare(0, first.size(), first) == 0) alike.tensors.push_back(&p);
    all.push_back(std::move(alike));
  }
  for (AlikeUnits& alike : all)
    alike.copies =
        std::max<std::int64_t>(1, std::ssize(alike.layers)) * (is_of_experts(alike.unit->kind) ? s.spec.E() : 1);
  return all;
}

std::vector<BlockKind> block_kinds(const ModelSpec& spec) {
  std::vector<BlockKind> kinds;
  bool seen[2] = {false, false};
  for (std::int64_t layer = 0; layer < spec.L(); ++layer) {
    const bool moe = spec.is_moe(layer);
    if (!seen[moe]) kinds.push_back({layer, moe ? "block with experts" : "block"});
    seen[moe] = true;
  }
  return kinds;
}

BufferList saved_of_block(const BufferContext& context, std::int64_t layer, Recompute policy) {
  BufferContext c = context;
  c.recompute = policy;
  return with_compute_type(c.precision, [&](auto type) {
    LayerBuffers<decltype(type)> members;
    const StageLayer block{LayerKind::block, layer};
    return buffers_in(LayerMemory::saved, c, {.first_layer = static_cast<int>(layer) - 1}, block, members);
  });
}

SentByGroup sent_by_group(const RunSetup& s, const std::vector<RankShare>& shares) {
  if (s.mesh.world() == 1) return {};
  std::vector<GroupTraffic> plans;
  const int ranks = s.mesh.world() / s.mesh.pp;
  const std::vector<int> shards = shards_to_look_at(s);
  const Repetition repeated = repetition_of(s.deck, s.microbatches);
  const Schedule few = few_of(s.deck, s.schedule);
  std::optional<Schedule> more;
  if (repeated.times > 0) more = lowered_schedule(s.deck, repeated.few + repeated.period);
  for (int p = 0; p < s.mesh.pp; ++p) {
    const RankShare share = shares.empty() ? rank_share(s.model_share(), p * ranks) : shares[to_size(p)];
    std::vector<GroupTraffic> of_stage = plan_traffic_of_shards(s.buffers, s.spec, s.mesh, share, few, shards);
    if (more) add_repeated(of_stage, plan_traffic(s.buffers, s.spec, s.mesh, share, *more), repeated.times);
    for (GroupTraffic& plan : of_stage) plans.push_back(std::move(plan));
  }
  SentByGroup sent{{}, shards.size()};
  for (std::size_t group = 0; group < plans.front().size(); ++group) {
    const auto most = std::max_element(plans.begin(), plans.end(), [&](const auto& a, const auto& b) {
      return a[group].second.total_bytes() < b[group].second.total_bytes();
    });
    if ((*most)[group].second.total_bytes() > 0)
      sent.groups.emplace_back(plans.front()[group].first, (*most)[group].second);
  }
  return sent;
}

std::vector<Allowance> gpu_allowances(const RunSetup& s) {
  std::vector<Allowance> list = rank_memory(s, RunKind::training).libraries;
  list.insert(list.begin(), context_allowance());
  return list;
}

RunSetup busiest(const RunSetup& s) {
  double most = 0;
  int rank = 0;
  for (int p = 0; p < s.mesh.pp; ++p) {
    const RankShare share = rank_share(s.model_share(), p * s.mesh.world() / s.mesh.pp, false);
    const double flops = flops_of(s.buffers, share, step_tasks(share, s.schedule, s.buffers.recompute));
    if (flops <= most) continue;
    most = flops;
    rank = p * s.mesh.world() / s.mesh.pp;
  }
  return on_devices(make_setup(s.deck, rank), s.capability);
}

}  // namespace forge
