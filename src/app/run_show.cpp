#include <cstdio>
#include <optional>
#include <utility>

#include "app/device_fit.hpp"
#include "app/job.hpp"
#include "app/layout_text.hpp"
#include "app/memory_svg.hpp"
#include "app/open_data.hpp"
#include "app/outputs.hpp"
#include "app/show_json.hpp"
#include "app/show_parts.hpp"
#include "app/summary_text.hpp"
#include "app/verbs.hpp"
#include "config/output_lock.hpp"
#include "config/recompute.hpp"
#include "config/text.hpp"
#include "config/write_deck.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "model/flops.hpp"
#include "plan/warnings.hpp"

namespace forge {

namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

const char* initial_text(const Parameter& p) {
  switch (p.initial) {
    case Initial::zeros:
      return "0";
    case Initial::ones:
      return "1";
    case Initial::normal:
      return "normal";
    case Initial::uniform:
      return "uniform";
    case Initial::log_uniform:
      return "ln uniform";
  }
  return "?";
}

void print_parameter(const Parameter& p, std::int64_t times, bool frozen, const UpdateRule& rule) {
  const std::string initial =
      p.initial == Initial::normal ? "normal " + format_exact(p.std).substr(0, 8) : initial_text(p);
  std::printf("  %-30s %-18s %14lld  %-15s %-5s %-9s %s\n", p.name.c_str(), shape_text(p.shape).c_str(),
              static_cast<long long>(p.elements() * times), initial.c_str(),
              !frozen && rule.weight_decay > 0 ? format_exact(rule.weight_decay).c_str() : "no",
              frozen ? "frozen" : format_exact(rule.learning_rate).c_str(), p.hf_name.c_str());
}

void print_parameters(const RunSetup& s) {
  std::printf("parameters (elements of all layers)\n  %-30s %-18s %14s  %-15s %-5s %-9s %s\n", "name", "shape",
              "elements", "starts at", "decay", "rate", "in the checkpoint");
  for (const AlikeUnits& alike : alike_units(s)) {
    const UnitKind kind = alike.unit->kind;
    for (const Parameter* p : alike.tensors)
      print_parameter(*p, alike.copies, alike.unit->frozen, update_rule(s.deck.optimizer, kind, *p));
    if (is_of_experts(kind) && s.spec.E() > 1)
      std::printf("  … the same for experts 1 to %lld\n", static_cast<long long>(s.spec.E() - 1));
    if (alike.layers.size() < 2) continue;
    const std::vector<std::int64_t> others(alike.layers.begin() + 1, alike.layers.end());
    std::printf("  … the same for layer%s %s\n", others.size() > 1 ? "s" : "", ranges_text(others).c_str());
  }
  const double all = static_cast<double>(parameter_count(s.units));
  std::printf("  %-30s %-18s %14lld  = %s\n\n", "all", "", static_cast<long long>(all), format_count(all).c_str());
}

void print_flops(const RunSetup& s) {
  const std::int64_t t = s.deck.train.sequence_tokens;
  double forward = 0;
  std::printf("FLOP a token, forward (T = %lld)\n", static_cast<long long>(t));
  auto lines = forward_flops_per_token(s.spec, t);
  lines.push_back({"adapters", adapter_flops_per_token(s.spec, s.units)});
  for (const auto& line : lines) forward += line.forward;
  for (const auto& line : lines)
    if (line.forward > 0)
      std::printf("  %-30s %14.0f  %5.1f %%\n", line.part.c_str(), line.forward, 100 * line.forward / forward);
  const double both = training_flops_per_token(s.spec, s.units, t);
  std::printf("  %-30s %14.0f\n  %-30s %14.0f\n  %-30s %14.4g\n\n", "forward", forward, "forward and backward", both,
              "a step of all ranks", both * static_cast<double>(s.tokens_per_step()));
  if (s.buffers.pairs)
    std::printf(
        "  of pairs the output head runs forward a second time, which the time of a step counts, but not mfu\n\n");
}

void print_saved(const RunSetup& s, const BlockKind& kind) {
  std::printf("saved by a %s for backward, one microbatch of %s\n", kind.name,
              counted(s.buffers.microbatch.rows(), "row").c_str());
  for (const auto& b : saved_of_block(s.buffers, kind.layer, Recompute::none))
    std::printf("  %-30s (%lld, %lld) %s  %s  last read by %s\n", std::string(b.name).c_str(),
                static_cast<long long>(b.extents[0]), static_cast<long long>(b.extents[1]),
                std::string(name_of(b.dtype)).c_str(), format_bytes(b.bytes()).c_str(),
                b.last_reader == Reader::backward_weight ? "W" : "B");
  std::printf("  kept of them with recompute:");
  for (const Recompute policy : recompute_policies(s.spec.options))
    std::printf("  %s %s%s", name_of(policy).c_str(),
                format_bytes(aligned_bytes(saved_of_block(s.buffers, kind.layer, policy))).c_str(),
                policy == s.buffers.recompute ? " (this deck)" : "");
  std::printf("\n\n");
}

// The pipeline ranks differ; all others do the same.
void print_memory(const RunSetup& s, const std::vector<MemoryPlan>& plans) {
  const int ranks = s.mesh.world() / s.mesh.pp;
  const MemoryPlan* largest = &largest_of(plans);
  const auto stage = static_cast<int>(largest - plans.data());
  std::printf("memory at a rank's peak, in the %s\n  %-16s %22s %14s %14s\n", largest->peak.c_str(), "",
              ("largest: pp rank " + std::to_string(stage)).c_str(), "", "all ranks");
  auto row = [&](const std::string& name, auto value) {
    std::size_t sum = 0;
    for (const MemoryPlan& plan : plans) sum += value(plan) * to_size(ranks);
    std::printf("  %-16s %20zu B %14s %14s\n", name.c_str(), value(*largest), format_bytes(value(*largest)).c_str(),
                format_bytes(sum).c_str());
  };
  for (int c = 0; c < category_count; ++c)
    row(std::string(name_of(static_cast<Category>(c))),
        [c](const MemoryPlan& plan) { return plan.of(static_cast<Category>(c)); });
  row("peak", [](const MemoryPlan& plan) { return plan.total(); });
}

// Bytes that a rank sends in a step, by group.
void print_traffic(const RunSetup& s) {
  if (s.mesh.world() == 1) return;
  const SentByGroup sent = sent_by_group(s);
  const std::string some = static_cast<int>(sent.shards) == s.mesh.dense_shards()
                               ? ""
                               : " (of " + std::to_string(sent.shards) + " of " +
                                     std::to_string(s.mesh.dense_shards()) + " shards of a stage)";
  std::printf(
      "\nsent in a step by the rank that sends most in the group, by the least that the operations need%s\n"
      "  %-18s %20s %8s\n",
      some.c_str(), "group", "bytes", "calls");
  for (const auto& [group, traffic] : sent.groups)
    std::printf("  %-18s %20lld %8lld  %s\n", group.c_str(), static_cast<long long>(traffic.total_bytes()),
                static_cast<long long>(traffic.total_calls()), format_bytes(to_size(traffic.total_bytes())).c_str());
}

// What libraries may take besides, where ranks have GPUs.
void print_allowances(const RunSetup& s) {
  std::printf("\non a GPU, besides: allowances\n");
  const std::vector<Allowance> list = gpu_allowances(s);
  for (const Allowance& a : list)
    std::printf("  %-30s %14s  %s\n", a.name.c_str(), format_bytes(a.bytes).c_str(), a.reason.c_str());
  std::printf("  %-30s %14s\n", "all", format_bytes(total(list)).c_str());
}

void print_layout(const RunSetup& setup) {
  const Deck& deck = setup.deck;
  const ModelSpec& spec = setup.spec;
  const MeshShape& mesh = setup.mesh;
  const Schedule schedule = shown_schedule(deck);
  std::printf("mesh of %s\n%s\n%s\n%s", counted(mesh.world(), "rank").c_str(), mesh_table(mesh, 0).c_str(),
              stage_table(deck, spec, schedule).c_str(), schedule_line(deck, spec, schedule).c_str());
  std::printf("\n");
}

// Each part in detail.
void print_all(const RunSetup& setup, const std::vector<MemoryPlan>& memory) {
  print_layout(setup);
  print_parameters(setup);
  std::printf("%s", expert_text(setup).c_str());
  print_flops(setup);
  std::printf("%s", rounding_text(setup).c_str());
  for (const BlockKind& kind : block_kinds(setup.spec)) print_saved(setup, kind);
  print_memory(setup, memory);
  print_allowances(setup);
  print_traffic(setup);
  std::printf("\n");
}

// Of the first rank of the stage that needs most.
std::string draw_memory(const CommandLine& line, const RunSetup& setup, const std::vector<MemoryPlan>& plans,
                        std::size_t usable) {
  const auto stage = static_cast<int>(&largest_of(plans) - plans.data());
  const std::string path = line.memory.substr(4),
                    title = line.inputs.front() + ", memory of a rank" +
                            (setup.mesh.pp > 1 ? " of pp rank " + std::to_string(stage) : "") + " in a step";
  const RunSetup of_stage = setup_of_stage(setup, stage);
  const OutputLock lock(path, "--memory svg:");
  write_text_file(path, memory_svg(of_stage, memory_course(of_stage), title, usable));
  return "written: " + path + "\n";
}

// The parts that options ask for, each with an empty line behind it.
std::string asked_parts(const CommandLine& line, const RunSetup& setup, const std::vector<MemoryPlan>& memory,
                        const Site& site, const std::optional<Machine>& machine) {
  std::string text;
  if (!line.schedule.empty()) text += draw_schedule(line.schedule, setup.deck, setup.schedule) + "\n";
  if (!line.memory.empty()) text += draw_memory(line, setup, memory, site.usable_bytes) + "\n";
  if (line.rates) text += rate_text(setup) + "\n";
  if (line.samples > 0) text += samples_text(setup, line.samples) + "\n";
  if (machine) text += cost_table(busiest(setup), *machine) + "\n";
  if (line.tasks >= 0) text += task_table(setup, line.tasks) + "\n";
  return text;
}

}  // namespace

void run_show(const CommandLine& line) {
  const auto gpu = line.gpu.empty() ? std::nullopt : std::optional(gpu_of(line.gpu));
  const auto machine = line.cost.empty() ? std::nullopt : std::optional(read_machine(line.cost));
  const int node_ranks = machine                      ? machine->ranks_per_node
                         : gpu && gpu->node_ranks > 0 ? gpu->node_ranks
                                                      : asked_node_ranks();
  const Deck deck = load_deck(line, Needs::training, line.ranks, node_ranks);
  check_outputs(line, deck);
  const int of_gpu = gpu ? gpu->capability : 0;
  const RunSetup setup = on_devices(make_setup(deck), of_gpu == 0 && machine ? machine->capability : of_gpu);
  if (line.tasks >= setup.mesh.world())
    throw BadInput("--tasks " + std::to_string(line.tasks) + ": the ranks are 0 to " +
                   std::to_string(setup.mesh.world() - 1));
  const std::vector<MemoryPlan> memory = memory_by_stage(setup, RunKind::training);
  const Site site{.usable_bytes = gpu ? usable_bytes(gpu->mib << 20) : 0};
  std::vector<std::string> warnings = warnings_of(setup, site);
  for (std::string& more : data_warnings(deck, false)) warnings.push_back(std::move(more));
  if (line.shows_json) {
    std::fputs(show_json(line, setup, memory, warnings, gpu, machine).c_str(), stdout);
    return;
  }
  const std::string parts =
      asked_parts(line, setup, memory, site, machine);  // first: what can't be shown prints nothing
  std::printf("%s\n%s%s\n", line.inputs.front().c_str(), summary_text(setup, memory).c_str(),
              warning_lines(warnings).c_str());
  if (gpu) std::printf("%s\n", fit_text(setup, *gpu).c_str());
  if (line.all) print_all(setup, memory);
  std::printf("%s", parts.c_str());
  if (line.resolved) std::printf("resolved deck\n%s", write_deck(deck).c_str());
  if (!line.all && !line.resolved)
    std::printf("more: --all (layout, parameters, memory, bytes sent), --deck (every key)\n");
}

}  // namespace forge
