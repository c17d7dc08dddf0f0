#include "app/layout_text.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "config/file_handle.hpp"
#include "layout/split.hpp"
#include "model/flops.hpp"
#include "schedule/draw.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"

namespace forge {

namespace {

std::vector<StageContent> stages_of(const Deck& deck, const Schedule& schedule) {
  return split_layers(deck.schedule.split, static_cast<int>(deck.model.layers), schedule.stages());
}

// Forward FLOP a token of every stage.
std::vector<double> stage_flops(const Deck& deck, const ModelSpec& spec, const std::vector<StageContent>& stages) {
  const auto lines = forward_flops_per_token(spec, deck.train.sequence_tokens);
  const double head = lines.back().forward;  // the others are the blocks'
  double blocks = 0;
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) blocks += lines[i].forward;
  std::vector<double> flops;
  for (const StageContent& stage : stages)
    flops.push_back(blocks * stage.layers / static_cast<double>(spec.L()) + (stage.head ? head : 0));
  return flops;
}

std::string contents_text(const StageContent& stage) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (stage.embedding) add("embedding");
  if (stage.layers == 1) add("layer " + std::to_string(stage.first_layer));
  if (stage.layers > 1)
    add("layers " + std::to_string(stage.first_layer) + " to " + std::to_string(stage.first_layer + stage.layers - 1));
  if (stage.head) add("head");
  return text.empty() ? "nothing" : text;
}

double recompute_cost(const Schedule& schedule) {
  const auto& list = schedule.actions.front();
  return std::any_of(list.begin(), list.end(), [](const Action& a) { return a.op == Op::recompute; }) ? 1 : 0;
}

}  // namespace

Schedule shown_schedule(const Deck& deck) {
  Schedule schedule = schedule_of(deck, static_cast<int>(deck.mesh.pp), static_cast<int>(microbatches_of(deck)));
  if (deck.train.recompute != Recompute::full) return schedule;
  return lower(schedule, {.recompute = true});
}

std::string stage_table(const Deck& deck, const ModelSpec& spec, const Schedule& schedule) {
  const auto stages = stages_of(deck, schedule);
  const auto flops = stage_flops(deck, spec, stages);
  double all = 0;
  for (const double f : flops) all += f;
  std::string text = "stages\n   stage  pp rank  chunk  layers   FLOP  holds\n";
  for (std::size_t s = 0; s < stages.size(); ++s) {
    char line[128];
    std::snprintf(line, sizeof line, "  %6zu  %7d  %5d  %6d %5.1f%%  ", s, schedule.places[s].rank,
                  schedule.places[s].chunk, stages[s].layers, 100 * flops[s] / all);
    text += line + contents_text(stages[s]) + "\n";
  }
  return text;
}

std::string schedule_line(const Deck& deck, const ModelSpec& spec, const Schedule& schedule) {
  const double again = recompute_cost(schedule);
  const auto flops = stage_flops(deck, spec, stages_of(deck, schedule));
  const double equal = timeline(schedule, uniform_durations(1, 1, 1, again)).bubble_share();
  const double weighted = timeline(schedule, [&](Op op, int stage) {
                            const double f = flops[static_cast<std::size_t>(stage)];
                            return op == Op::recompute ? again * f : f;
                          }).bubble_share();
  char text[256];
  std::snprintf(text, sizeof text,
                "schedule %s: pp %d, chunks %d, microbatches %d; ranks idle %.1f %% of the step with equal "
                "stages, %.1f %% by FLOP\n",
                schedule.name.c_str(), schedule.ranks, schedule.chunks_per_rank, schedule.microbatches, 100 * equal,
                100 * weighted);
  return text;
}

std::string draw_schedule(const std::string& option, const Schedule& schedule) {
  const auto duration = uniform_durations(1, 1, 1, recompute_cost(schedule));
  if (option == "text") return draw_text(schedule, duration);
  const std::string path = option.substr(4), svg = draw_svg(schedule, duration);
  FileHandle file = FileHandle::open_to_write(path);
  file.write_at(0, svg.data(), svg.size());
  return "written: " + path + "\n";
}

}  // namespace forge
