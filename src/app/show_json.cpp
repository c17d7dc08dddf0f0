#include "app/show_json.hpp"

#include <map>
#include <utility>

#include "app/layout_text.hpp"
#include "app/show_parts.hpp"
#include "config/recompute.hpp"
#include "core/json.hpp"
#include "model/flops.hpp"
#include "model/update_rule.hpp"
#include "nn/units.plan.hpp"
#include "plan/pass_memo.hpp"
#include "plan/placement.hpp"
#include "plan/task_segments.hpp"
#include "plan/traffic.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

JsonLine tensor_json(const RunSetup& s, const AlikeUnits& alike, const Parameter& p) {
  const UpdateRule rule = update_rule(s.deck.optimizer, alike.unit->kind, p);
  JsonLine tensor;
  tensor.add("name", p.name).add("shape", p.shape).add("elements", p.elements() * alike.copies);
  switch (p.initial) {
    case Initial::zeros:
      tensor.add("starts_at", 0.0);
      break;
    case Initial::ones:
      tensor.add("starts_at", 1.0);
      break;
    case Initial::normal:
      tensor.add("starts_with_deviation", p.std);
      break;
    case Initial::uniform:
      tensor.add("starts_within", p.std);
      break;
    case Initial::log_uniform:
      tensor.add("starts_with_logarithms_within", p.std);
  }
  tensor.add("frozen", alike.unit->frozen);
  tensor.add("weight_decay", rule.weight_decay).add("learning_rate", rule.learning_rate);
  return tensor.add("in_the_checkpoint", p.hf_name);
}

JsonLine model_json(const RunSetup& s) {
  JsonLine model, flops;
  std::vector<JsonLine> groups;
  for (const AlikeUnits& alike : alike_units(s)) {
    JsonLine group;
    std::vector<JsonLine> tensors;
    for (const Parameter* p : alike.tensors) tensors.push_back(tensor_json(s, alike, *p));
    group.add("unit", name_of(alike.unit->kind)).add("layers", alike.layers).add("copies", alike.copies);
    groups.push_back(group.add("tensors", tensors));
  }
  const std::int64_t tokens = s.deck.train.sequence_tokens;
  for (const FlopsLine& part : forward_flops_per_token(s.spec, tokens))
    if (part.forward > 0) flops.add(part.part, part.forward);
  if (const double adapters = adapter_flops_per_token(s.spec, s.units); adapters > 0) flops.add("adapters", adapters);
  model.add("parameters", parameter_count(s.units)).add("active_parameters", active_parameter_count(s.spec));
  model.add("groups", groups).add("forward_flops_per_token", flops);
  return model.add("flops_per_token", training_flops_per_token(s.spec, s.units, tokens))
      .add("tokens_per_step", s.tokens_per_step())
      .add("tokens", s.tokens_through(s.deck.train.steps));
}

std::vector<JsonLine> saved_json(const RunSetup& s) {
  std::vector<JsonLine> list;
  for (const BlockKind& kind : block_kinds(s.spec)) {
    JsonLine block, kept;
    std::vector<JsonLine> buffers;
    for (const BufferSpec& b : saved_of_block(s.buffers, kind.layer, Recompute::none)) {
      JsonLine buffer;
      buffer.add("name", b.name).add("extents", std::vector{b.extents[0], b.extents[1]});
      buffer.add("type", name_of(b.dtype)).add("bytes", b.bytes());
      buffers.push_back(buffer.add("last_read_by", b.last_reader == Reader::backward_weight ? "W" : "B"));
    }
    for (const Recompute policy : recompute_policies(s.spec.options))
      kept.add(name_of(policy), aligned_bytes(saved_of_block(s.buffers, kind.layer, policy)));
    block.add("layer", kind.name).add("rows", s.buffers.microbatch.rows());
    list.push_back(block.add("buffers", buffers).add("kept_bytes", kept));
  }
  return list;
}

// What tasks of one kind compute and send.
struct Work {
  std::int64_t tasks = 0, launches = 0, row_bytes = 0, count_reads = 0;
  double product_flops = 0, attention_flops = 0;
  std::map<Group, std::int64_t> sent;

  void add(const Work& other) {
    tasks += other.tasks, launches += other.launches, row_bytes += other.row_bytes, count_reads += other.count_reads;
    product_flops += other.product_flops, attention_flops += other.attention_flops;
    for (const auto& [group, bytes] : other.sent) sent[group] += bytes;
  }
};

Work work_of(const RunSetup& s, const RankShare& share, const GroupSizes& sizes, const Task& task) {
  const Segments list = segments_of(s.buffers, share, task);
  Work work;
  work.tasks = 1;
  work.launches = list.launches();
  work.count_reads = list.count_reads;
  for (const RowKernel& k : list.all<RowKernel>()) work.row_bytes += k.read_bytes + k.written_bytes;
  for (const AttentionProduct& a : list.all<AttentionProduct>()) work.attention_flops += a.flops();
  work.product_flops = list.flops() - work.attention_flops;
  for (const Sent& sent : sends_of(s.buffers, share, task))
    if (const std::int64_t bytes = bytes_of(sent, sizes); bytes > 0) work.sent[sent.group] += bytes;
  return work;
}

// Of the first rank of a stage, by task and kind of layer, in the order of the first ones.
JsonLine work_json(const RunSetup& s, int pp_rank) {
  const RankShare share = rank_share(s.model_share(), pp_rank * s.mesh.world() / s.mesh.pp);
  const GroupSizes sizes = group_sizes(s.spec, s.mesh, share);
  std::vector<std::pair<std::pair<std::string, std::string>, Work>> rows;
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  PassMemo<Work> known;
  for (const auto& tasks :
       {step_tasks(share, s.schedule, s.buffers.recompute), update_tasks(share, s.spec.options.router_bias)})
    for (const Task& task : tasks) {
      const std::pair key(std::string(name_of(task.op)), subject_of(task, share, s.spec));
      const std::size_t place = places.emplace(key, rows.size()).first->second;
      if (place == rows.size()) rows.emplace_back(key, Work{});
      const auto make = [&] { return work_of(s, share, sizes, task); };
      const LayerPass pass = pass_of(task, share);
      rows[place].second.add(pass.layer ? known.of(pass, make) : make());
    }
  std::vector<JsonLine> list;
  for (const auto& [name, work] : rows) {
    JsonLine row, sent;
    for (const auto& [group, bytes] : work.sent) sent.add(name_of(group), bytes);
    row.add("task", name.first).add("of", name.second).add("tasks", work.tasks).add("launches", work.launches);
    row.add("product_flops", work.product_flops).add("attention_flops", work.attention_flops);
    row.add("row_bytes", work.row_bytes).add("count_reads", work.count_reads).add("sent_bytes", sent);
    list.push_back(row);
  }
  return JsonLine().add("pp_rank", pp_rank).add("rows", list);
}

JsonLine gpu_json(const RunSetup& s, const AskedGpu& gpu) {
  const std::size_t needed = rank_memory(s, RunKind::training).total(), usable = usable_bytes(gpu.mib << 20);
  JsonLine fit;
  fit.add("name", gpu.name).add("needed_bytes", needed).add("usable_bytes", usable);
  fit.add("fits", needed <= usable);
  if (needed <= usable) return fit;
  const FewestGpus fewest = fewest_gpus(s.deck, usable, s.capability);
  fit.add("change", nearest_change(s, RunKind::training, usable, FitOn::gpu));
  fit.add("fewest_gpus", fewest.ranks).add("layout_of_fewest", fewest.keys);
  return fit.add("too_few_gpus", fewest.tried).add("enough_gpus", fewest.ranks > 0 ? fewest.ranks : fewest.enough);
}

}  // namespace

std::string show_json(const CommandLine& line, const RunSetup& s, const std::vector<MemoryPlan>& memory,
                      const std::vector<std::string>& warnings, const std::optional<AskedGpu>& gpu,
                      const std::optional<Machine>& machine) {
  JsonLine all;
  std::vector<JsonLine> work;
  for (int p = 0; p < s.mesh.pp; ++p) work.push_back(work_json(s, p));
  all.add("input", line.inputs.front()).add("warnings", warnings);
  all.add("model", model_json(s));
  all.add("layout", layout_json(s.deck, s.spec, s.mesh, shown_schedule(s.deck)));
  if (s.spec.E() > 0) all.add("experts", expert_json(s));
  add_rounding(all, s);
  all.add("saved", saved_json(s)).add("memory", memory_json(s, memory));
  all.add("sent", sent_json(s)).add("work", work);
  if (gpu) all.add("gpu", gpu_json(s, *gpu));
  if (line.rates) all.add("rates", rates_json(s));
  if (line.samples > 0) all.add("samples", samples_json(s, line.samples));
  if (machine) all.add("cost", cost_json(busiest(s), *machine));
  if (line.tasks >= 0) all.add("tasks", tasks_json(s, line.tasks));
  // Names of files need not be UTF-8.
  return replace_ill_formed(all.add("deck", deck_json(s.deck)).lines());
}

}  // namespace forge
