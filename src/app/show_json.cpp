#include "app/show_json.hpp"

#include <map>
#include <type_traits>
#include <utility>
#include <variant>

#include "app/cost_text.hpp"
#include "app/expert_text.hpp"
#include "app/fp8_text.hpp"
#include "app/layout_text.hpp"
#include "app/rate_text.hpp"
#include "app/show_parts.hpp"
#include "app/task_table.hpp"
#include "config/keys.hpp"
#include "core/json.hpp"
#include "core/to_size.hpp"
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

std::int64_t whole(std::size_t n) {
  return static_cast<std::int64_t>(n);
}

JsonLine tensor_json(const RunSetup& s, const AlikeUnits& alike, const Parameter& p) {
  const UpdateRule rule = update_rule(s.deck.optimizer, alike.unit->kind, p);
  JsonLine tensor;
  tensor.add("name", p.name).add_list("shape", json_list(p.shape)).add("elements", p.elements() * alike.copies);
  switch (p.initial) {
    case Initial::zeros:
      tensor.add("starts_at", 0.0);
      break;
    case Initial::ones:
      tensor.add("starts_at", 1.0);
      break;
    case Initial::normal:
      tensor.add("starts_with_deviation", p.std);
  }
  tensor.add("weight_decay", rule.weight_decay).add("learning_rate", rule.learning_rate);
  return tensor.add("in_the_checkpoint", p.hf_name);
}

JsonLine model_json(const RunSetup& s) {
  JsonLine model, flops;
  JsonList groups;
  for (const AlikeUnits& alike : alike_units(s)) {
    JsonLine group;
    JsonList tensors;
    for (const Parameter* p : alike.tensors) tensors.add(tensor_json(s, alike, *p));
    group.add("unit", std::string(name_of(alike.unit->kind))).add_list("layers", json_list(alike.layers));
    groups.add(group.add("copies", alike.copies).add_list("tensors", tensors));
  }
  const std::int64_t tokens = s.deck.train.sequence_tokens;
  double forward = 0;
  for (const FlopsLine& part : forward_flops_per_token(s.spec, tokens)) {
    if (part.forward > 0) flops.add(part.part, part.forward);
    forward += part.forward;
  }
  model.add("parameters", parameter_count(s.units)).add("active_parameters", active_parameter_count(s.spec));
  model.add_list("groups", groups).add_object("forward_flops_per_token", flops);
  return model.add("flops_per_token", 3 * forward)
      .add("tokens_per_step", s.tokens_per_step())
      .add("tokens", s.tokens_through(s.deck.train.steps));
}

JsonList saved_json(const RunSetup& s) {
  JsonList list;
  for (const BlockKind& kind : block_kinds(s.spec)) {
    JsonLine block, kept;
    JsonList buffers;
    for (const BufferSpec& b : saved_of_block(s.buffers, kind.layer, Recompute::none)) {
      JsonLine buffer;
      buffer.add("name", std::string(b.name)).add_list("extents", JsonList().add(b.extents[0]).add(b.extents[1]));
      buffer.add("type", std::string(name_of(b.dtype))).add("bytes", whole(b.bytes()));
      buffers.add(buffer.add("last_read_by", std::string(b.last_reader == Reader::backward_weight ? "W" : "B")));
    }
    for (const auto& [policy, name] :
         {std::pair{Recompute::none, "none"}, {Recompute::selective, "selective"}, {Recompute::full, "full"}})
      kept.add(name, whole(aligned_bytes(saved_of_block(s.buffers, kind.layer, policy))));
    block.add("layer", std::string(kind.name)).add("rows", s.buffers.microbatch.rows());
    list.add(block.add_list("buffers", buffers).add_object("kept_bytes", kept));
  }
  return list;
}

JsonLine memory_json(const RunSetup& s, const std::vector<MemoryPlan>& plans) {
  JsonLine memory;
  JsonList ranks, allowances;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    JsonLine rank, bytes;
    for (int c = 0; c < category_count; ++c)
      bytes.add(std::string(name_of(static_cast<Category>(c))), whole(plans[p].of(static_cast<Category>(c))));
    rank.add("pp_rank", whole(p)).add("peak", plans[p].peak).add_object("bytes", bytes);
    ranks.add(rank.add("total_bytes", whole(plans[p].total())));
  }
  for (const Allowance& a : gpu_allowances(s))
    allowances.add(JsonLine().add("name", a.name).add("bytes", whole(a.bytes)).add("reason", a.reason));
  memory.add("ranks_of_each", std::int64_t{s.mesh.world() / s.mesh.pp}).add_list("ranks", ranks);
  return memory.add_list("gpu_allowances", allowances);
}

JsonLine sent_json(const RunSetup& s) {
  const SentByGroup sent = sent_by_group(s);
  JsonLine groups, all;
  for (const auto& [name, traffic] : sent.groups) {
    JsonLine group, operations;
    for (int c = 0; c < collective_count; ++c)
      if (const std::int64_t calls = traffic.calls[to_size(c)]; calls > 0)
        operations.add_object(std::string(name_of(static_cast<Collective>(c))),
                              JsonLine().add("bytes", traffic.bytes[to_size(c)]).add("calls", calls));
    group.add("bytes", traffic.total_bytes()).add("calls", traffic.total_calls());
    groups.add_object(name, group.add_object("collectives", operations));
  }
  return all.add("shards", whole(sent.shards)).add_object("groups", groups);
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

// The kind of layer or unit that a task is about.
std::string subject_of(const RunSetup& s, const RankShare& share, const Task& task) {
  if (task.unit != no_unit) return std::string(name_of(share.units[task.unit].kind));
  if (task.layer < 0) return "";
  const StageLayer& layer = layer_of(task, share);
  const bool experts = layer.kind == LayerKind::block && s.spec.is_moe(layer.number);
  return std::string(name_of(layer.kind)) + (experts ? " with experts" : "");
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
      const std::pair key(std::string(name_of(task.op)), subject_of(s, share, task));
      const std::size_t place = places.emplace(key, rows.size()).first->second;
      if (place == rows.size()) rows.emplace_back(key, Work{});
      const auto make = [&] { return work_of(s, share, sizes, task); };
      const LayerPass pass = pass_of(task, share);
      rows[place].second.add(pass.layer ? known.of(pass, make) : make());
    }
  JsonList list;
  for (const auto& [name, work] : rows) {
    JsonLine row, sent;
    for (const auto& [group, bytes] : work.sent) sent.add(std::string(name_of(group)), bytes);
    row.add("task", name.first).add("of", name.second).add("tasks", work.tasks).add("launches", work.launches);
    row.add("product_flops", work.product_flops).add("attention_flops", work.attention_flops);
    row.add("row_bytes", work.row_bytes).add("count_reads", work.count_reads).add_object("sent_bytes", sent);
    list.add(row);
  }
  return JsonLine().add("pp_rank", std::int64_t{pp_rank}).add_list("rows", list);
}

// The key's value, of the type that JSON has for it; lists of maps as the deck has them.
void add_value(JsonLine& section, const Key& key, const Deck& deck) {
  std::visit(
      [&](const auto& kind) {
        using Kind = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<Kind, UnsignedKey>)
          section.add_raw(key.name, std::to_string(kind.access.get(deck)));
        else if constexpr (std::is_same_v<Kind, PathsKey> || std::is_same_v<Kind, IntegersKey>)
          section.add_list(key.name, json_list(kind.access.get(deck)));
        else if constexpr (std::is_same_v<Kind, ChoiceKey>)
          section.add(key.name, kind.words[to_size(kind.access.get(deck))]);
        else if constexpr (std::is_same_v<Kind, IntegerKey> || std::is_same_v<Kind, NumberKey> ||
                           std::is_same_v<Kind, FlagKey> || std::is_same_v<Kind, TextKey> ||
                           std::is_same_v<Kind, PathKey>)
          section.add(key.name, kind.access.get(deck));
        else
          section.add(key.name, value_text(key, deck));
      },
      key.kind);
}

JsonLine deck_json(const Deck& deck) {
  JsonLine all;
  for (const SectionInfo& info : all_sections()) {
    JsonLine section;
    for (const Key& key : all_keys())
      if (key.section == info.name) add_value(section, key, deck);
    all.add_object(info.name, section);
  }
  return all;
}

JsonLine gpu_json(const RunSetup& s, const AskedGpu& gpu) {
  const std::size_t needed = rank_memory(s, RunKind::training).total(), usable = usable_bytes(gpu.mib << 20);
  JsonLine fit;
  fit.add("name", gpu.name).add("needed_bytes", whole(needed)).add("usable_bytes", whole(usable));
  fit.add("fits", needed <= usable);
  if (needed > usable) fit.add("change", nearest_change(s, RunKind::training, usable, FitOn::gpu));
  return fit;
}

}  // namespace

std::string show_json(const CommandLine& line, const RunSetup& s, const std::vector<MemoryPlan>& memory,
                      const std::vector<std::string>& warnings, const std::optional<AskedGpu>& gpu,
                      const std::optional<Machine>& machine) {
  JsonLine all;
  JsonList work;
  for (int p = 0; p < s.mesh.pp; ++p) work.add(work_json(s, p));
  all.add("input", line.inputs.front()).add_list("warnings", json_list(warnings));
  all.add_object("model", model_json(s));
  all.add_object("layout", layout_json(s.deck, s.spec, s.mesh, shown_schedule(s.deck)));
  if (s.spec.E() > 0) all.add_object("experts", expert_json(s));
  if (s.buffers.fp8.on) all.add_object("fp8", fp8_json(s));
  all.add_list("saved", saved_json(s)).add_object("memory", memory_json(s, memory));
  all.add_object("sent", sent_json(s)).add_list("work", work);
  if (gpu) all.add_object("gpu", gpu_json(s, *gpu));
  if (line.rates) all.add_list("rates", rates_json(s));
  if (machine) all.add_object("cost", cost_json(busiest(s), *machine));
  if (line.tasks >= 0) all.add_list("tasks", tasks_json(s, line.tasks));
  // Names of files need not be UTF-8.
  return replace_ill_formed(all.add_object("deck", deck_json(s.deck)).lines());
}

}  // namespace forge
