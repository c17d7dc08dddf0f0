#include "app/layout_text.hpp"

#include <algorithm>
#include <vector>

#include "config/output_lock.hpp"
#include "config/recompute.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "layout/split.hpp"
#include "model/flops.hpp"
#include "schedule/draw.hpp"
#include "schedule/from_deck.hpp"

namespace forge {

namespace {

std::vector<StageContent> stages_of(const Deck& deck, const Schedule& schedule) {
  return split_layers(deck.schedule.split, static_cast<int>(deck.model.layers), schedule.stages(),
                      static_cast<int>(deck.model.mtp_depth));
}

// Forward FLOP a token of one layer of the model or of multi-token prediction: those of a model of one such layer, less
// its head.
double layer_flops(const ModelSpec& spec, std::int64_t layer, std::int64_t sequence_tokens) {
  ModelSpec one = spec;
  one.options.layers = 1;
  one.options.mtp_depth = 0;
  one.options.first_dense_layers = spec.is_moe(layer) ? 0 : 1;
  one.options.moe_every = 1;
  one.options.dense_layers.clear();
  one.options.sliding_window = spec.window(layer);
  one.options.sliding_window_layer = one.options.sliding_window_full_every = 0;
  one.options.full_attention_interval = spec.linear(layer) ? 2 : 0;
  const auto lines = forward_flops_per_token(one, sequence_tokens);
  double flops = 0;
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) flops += lines[i].forward;
  const auto width = static_cast<double>(spec.C());
  return layer < spec.L() ? flops : flops + 4 * width * width;  // its projection of (C, 2C)
}

// Forward FLOP a token of every stage; the head's other uses, by multi-token layers, count where the head is.
std::vector<double> stage_flops(const Deck& deck, const ModelSpec& spec, const std::vector<StageContent>& stages) {
  const std::int64_t tokens = deck.train.sequence_tokens;
  const double head = forward_flops_per_token(spec, tokens).back().forward;
  std::vector<double> flops;
  for (const StageContent& stage : stages) {
    double sum = stage.head ? head : 0;
    for (int l = 0; l < stage.layers + stage.mtp_layers; ++l) sum += layer_flops(spec, stage.layer(l), tokens);
    flops.push_back(sum);
  }
  return flops;
}

std::string contents_text(const StageContent& stage) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (stage.embedding) add("embedding");
  if (stage.layers == 1) add("layer " + std::to_string(stage.first_layer));
  if (stage.layers > 1)
    add("layers " + std::to_string(stage.first_layer) + " to " + std::to_string(stage.first_layer + stage.layers - 1));
  if (stage.final_norm() && !stage.head) add("final norm");
  if (stage.mtp_layers > 0) add(std::to_string(stage.mtp_layers) + " of multi-token prediction");
  if (stage.head) add("head");
  return text.empty() ? "nothing" : text;
}

// Backward recomputes so much of a stage's forward pass.
double recompute_cost(const Deck& deck) {
  return fraction_recomputed(deck.train, layers_of_stage(deck));
}

// The fraction of the step that the ranks idle: with equal stages, and with the stages' FLOP.
struct Bubble {
  double equal, weighted;
};
Bubble bubble_of(const Deck& deck, const ModelSpec& spec, const Schedule& schedule) {
  const double recomputed = recompute_cost(deck);
  const auto stages = stages_of(deck, schedule);
  const auto flops = stage_flops(deck, spec, stages);
  const double equal = timeline(schedule, uniform_durations(1, 1 + recomputed, 1)).bubble_fraction();
  const double weighted = timeline(schedule, [&](Op op, int stage) {
                            const double f = flops[to_size(stage)];
                            const double again = fraction_recomputed(deck.train, stages[to_size(stage)].layers);
                            const double input = computes_input_gradient(op) ? 1 + again : 0;
                            return f * (op == Op::forward ? 1 : input + (computes_weight_gradient(op) ? 1 : 0));
                          }).bubble_fraction();
  return {equal, weighted};
}

JsonLine mesh_json(const MeshShape& m) {
  JsonLine mesh;
  mesh.add("ranks", m.world()).add("pp", m.pp).add("dp_replicate", m.dp_replicate).add("dp_shard", m.dp_shard);
  return mesh.add("cp", m.cp).add("tp", m.tp).add("edp", m.edp).add("ep", m.ep).add("etp", m.etp);
}

std::vector<JsonLine> stages_json(const Deck& deck, const ModelSpec& spec, const Schedule& schedule) {
  const auto stages = stages_of(deck, schedule);
  const auto flops = stage_flops(deck, spec, stages);
  std::vector<JsonLine> list;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    JsonLine stage;
    stage.add("pp_rank", schedule.places[s].rank).add("chunk", schedule.places[s].chunk);
    stage.add("layers", stages[s].layers).add("holds", contents_text(stages[s]));
    list.push_back(stage.add("forward_flops_per_token", flops[s]));
  }
  return list;
}

}  // namespace

JsonLine layout_json(const Deck& deck, const ModelSpec& spec, const MeshShape& mesh, const Schedule& schedule) {
  const Bubble bubble = bubble_of(deck, spec, schedule);
  JsonLine steps, all;
  steps.add("name", schedule.name).add("pp", schedule.ranks).add("chunks", schedule.chunks_per_rank);
  steps.add("microbatches", schedule.microbatches);
  steps.add("idle_share_equal_stages", bubble.equal).add("idle_share_by_flops", bubble.weighted);
  all.add("mesh", mesh_json(mesh)).add("stages", stages_json(deck, spec, schedule));
  return all.add("schedule", steps);
}

Schedule shown_schedule(const Deck& deck) {
  return schedule_of(deck, static_cast<int>(deck.mesh.pp), static_cast<int>(microbatches_of(deck)));
}

std::string stage_table(const Deck& deck, const ModelSpec& spec, const Schedule& schedule) {
  const auto stages = stages_of(deck, schedule);
  const auto flops = stage_flops(deck, spec, stages);
  double all = 0;
  for (const double f : flops) all += f;
  std::string text = "stages\n   stage  pp rank  chunk  layers   FLOP  holds\n";
  for (std::size_t s = 0; s < stages.size(); ++s) {
    text += formatted("  %6zu  %7d  %5d  %6d %5.1f%%  ", s, schedule.places[s].rank, schedule.places[s].chunk,
                      stages[s].layers, 100 * flops[s] / all) +
            contents_text(stages[s]) + "\n";
  }
  return text;
}

std::string schedule_line(const Deck& deck, const ModelSpec& spec, const Schedule& schedule) {
  const Bubble bubble = bubble_of(deck, spec, schedule);
  return formatted(
      "schedule %s: pp %d, chunks %d, microbatches %d; ranks idle %.1f %% of the step with equal "
      "stages, %.1f %% by FLOP\n",
      schedule.name.c_str(), schedule.ranks, schedule.chunks_per_rank, schedule.microbatches, 100 * bubble.equal,
      100 * bubble.weighted);
}

std::string draw_schedule(const std::string& option, const Deck& deck, const Schedule& schedule) {
  const auto duration = uniform_durations(1, 1 + recompute_cost(deck), 1);
  if (option == "text") return draw_text(schedule, duration);
  const std::string path = option.substr(4), svg = draw_svg(schedule, duration);
  const OutputLock lock(path, "--schedule svg:");
  write_text_file(path, svg);
  return "written: " + path + "\n";
}

}  // namespace forge
