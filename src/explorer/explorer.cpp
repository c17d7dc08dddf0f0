#include <array>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "app/plan_text.hpp"
#include "app/short_deck.hpp"
#include "app/show_parts.hpp"
#include "config/keys.hpp"
#include "config/read.hpp"
#include "config/write_deck.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/parse.hpp"
#include "core/to_size.hpp"
#include "hf/config.hpp"
#include "nn/units.plan.hpp"
#include "plan/rank_memory.hpp"
#include "predict/advice.hpp"
#include "predict/dense_deck.hpp"
#include "predict/dense_shape.hpp"
#include "predict/search_space.hpp"
#include "schedule/check_deck.hpp"

// The explorer's answers to its page, as functions from texts to JSON: the same planner as `forge plan` and `forge
// show`. A request is a deck, settings "section.key=value" one a line, a machine's name and a number of ranks (0: as
// many as the deck's mesh asks for). Files (machines, a pasted config.json) come first, into the module's own file
// system. An answer is good until the next request. An input that is wrong gives {"error": "…"}.

namespace forge {

namespace {

struct Request {
  std::string deck;
  std::vector<std::string> settings;
  Machine machine;
  int ranks;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> list;
  for (const std::string_view line : parts_of(text, '\n'))
    if (!line.empty()) list.emplace_back(line);
  return list;
}

Deck checked_deck(const Request& r) {
  Deck deck = read_deck(r.deck, "the deck", r.settings);
  deck.mesh.node_ranks = r.machine.ranks_per_node;
  constexpr std::int64_t most_ranks = 1 << 20;
  const std::int64_t asked = ranks_of(deck.mesh);
  check_deck(deck, r.ranks > 0 ? r.ranks : asked >= 1 && asked <= most_ranks ? static_cast<int>(asked) : 1);
  return deck;
}

JsonLine layout_of(const Deck& deck) {
  JsonLine layout;
  for (const auto& [key, value] : layout_values(deck)) layout.add(key, value);
  return layout;
}

// Memory of the stages.
std::string facts_of(const Request& r) {
  const Deck deck = checked_deck(r);
  const RunSetup setup = on_devices(make_setup(deck), r.machine.capability);
  const int ranks = static_cast<int>(ranks_of(deck.mesh));
  JsonLine all;
  all.add("ranks", ranks).add("ranks_per_node", r.machine.ranks_per_node);
  all.add("parameters", parameter_count(setup.units)).add("active_parameters", active_parameter_count(setup.spec));
  all.add("layers", deck.model.layers).add("experts", deck.model.experts);
  all.add("microbatches", setup.microbatches).add("tokens_per_step", setup.tokens_per_step());
  all.add("usable_bytes", usable_memory(r.machine, ranks)).add("layout", layout_of(deck));
  std::vector<MemoryPlan> stages;
  const auto keep = [&](const MemoryPlan& plan, const RankShare&) { stages.push_back(plan); };
  const RankMemory largest = rank_memory(setup, RunKind::training, keep);
  all.add("memory", JsonLine().add("ranks", stages_json(stages)));
  std::vector<JsonLine> libraries;
  for (const Allowance& a : largest.libraries)
    libraries.push_back(JsonLine().add("name", a.name).add("bytes", a.bytes));
  all.add("allowances", libraries).add("peak_bytes", largest.total());
  return all.add("deck", deck_json(deck)).text();
}

std::string sent_of(const Request& r) {
  return sent_json(on_devices(make_setup(checked_deck(r)), r.machine.capability)).text();
}

// The last one is kept: the page asks for the step, its timeline and its plan one after the other.
const Outcome& predicted(const Request& r) {
  static std::string known;
  static Outcome outcome;
  std::string question = r.deck + '\n' + r.machine.name + ' ' + std::to_string(r.ranks);
  for (const std::string& setting : r.settings) question += '\n' + setting;
  if (const Deck deck = checked_deck(r); question != known || write_deck(deck) != write_deck(outcome.deck)) {
    outcome = outcome_of(r.machine, deck);
    known = std::move(question);
  }
  return outcome;
}

std::string plan_of(const Request& r) {
  const Outcome& outcome = predicted(r);
  const std::vector<PredictedNeighbour> neighbours = predicted_neighbours(r.machine, outcome);
  return plan_json(r.machine, outcome, neighbours, all_warnings(r.machine, outcome, neighbours));
}

// The kind of a stretch of a stream in the drawing: 0 forward, 1 backward, 2 backward of weights, 3 step and update;
// then the other streams.
int kind_of(const Task& task, Lane lane) {
  if (lane != Lane::compute) return 3 + static_cast<int>(lane);
  if (task.of_step()) return 3;
  switch (task.action.op) {
    case Op::forward:
      return 0;
    case Op::backward_weight:
      return 2;
    default:
      return 1;
  }
}

// The step as it is simulated: of each pipeline rank stretches [kind, start, end], in seconds. Of one stream and kind
// they are joined over gaps that no screen shows.
std::string timeline_of(const Request& r) {
  const Outcome& outcome = predicted(r);
  const double gap = outcome.time.seconds / 4000;
  struct Stretch {
    int kind;
    double start, end;
  };
  JsonLine all;
  std::vector<JsonLine> ranks;
  for (std::size_t rank = 0; rank < outcome.time.spans.size(); ++rank) {
    std::vector<Stretch> drawn;
    std::array<std::size_t, lane_count> last{};  // 1 + its place, of each stream
    for (const Span& span : outcome.time.spans[rank]) {
      if (span.task < 0) continue;
      const Task& task = outcome.time.tasks[rank][to_size(span.task)];
      const int kind = kind_of(task, span.lane);
      std::size_t& before = last[to_size(span.lane)];
      if (before > 0 && drawn[before - 1].kind == kind && span.start - drawn[before - 1].end < gap) {
        drawn[before - 1].end = span.end;
        continue;
      }
      drawn.push_back({kind, span.start, span.end});
      before = drawn.size();
    }
    std::string stretches;
    for (const Stretch& d : drawn)
      stretches += formatted("%s[%d, %.6g, %.6g]", stretches.empty() ? "" : ", ", d.kind, d.start, d.end);
    ranks.push_back(JsonLine().add("pp_rank", rank).add_raw("stretches", "[" + stretches + "]"));
  }
  return all.add("step_seconds", outcome.time.seconds).add("ranks", ranks).text();
}

std::string search_of(Request r, int best, double seconds) {
  const int ranks = r.ranks > 0 ? r.ranks : static_cast<int>(ranks_of(checked_deck(r).mesh));
  for (const std::string& setting : plain_settings()) r.settings.push_back(setting);
  r.ranks = 1;
  return search_json(r.machine, search(r.machine, checked_deck(r), {ranks, best, seconds}), ranks).text();
}

std::string deck_of(const Request& r) {
  const Deck deck = checked_deck(r);
  return JsonLine().add("deck", short_deck(deck, static_cast<int>(ranks_of(deck.mesh)))).text();
}

// The deck of a dense model of a size as --models takes it, with the batch of that size.
std::string sized_deck(const std::string& word) {
  const auto size = size_of_word(word);
  if (!size || *size < least_dense_parameters || *size > most_dense_parameters)
    throw BadInput("a size is a number and B or T, from 1B to 1T: 8B, 1.5T");
  const Deck deck = dense_deck(size_text(*size), *size, {});
  return JsonLine().add("deck", dense_deck_text(size_text(*size), *size, deck.train.global_batch_sequences)).text();
}

// Choices of a key, for the page's controls.
std::string keys_json() {
  JsonLine all;
  for (const Key& key : all_keys())
    all.add(key.qualified(), JsonLine().add("legal", legal_values(key)).add("doc", key.doc));
  return all.text();
}

template <class F>
const char* answer(F&& f) {
  static std::string text;
  try {
    text = f();
  } catch (const std::exception& error) {
    text = JsonLine().add("error", std::string(error.what())).text();
  }
  return text.c_str();
}

Request request_of(const char* deck, const char* settings, const char* machine, int ranks) {
  return {deck, lines_of(settings), read_machine(machine), ranks};
}

}  // namespace

}  // namespace forge

extern "C" {

// Puts a file where the others look for it: inputs/machines/h100_8.yaml, model/config.json.
const char* explorer_file(const char* path, const char* text) {
  return forge::answer([&] {
    const std::filesystem::path file(path);
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return std::string("{}");
  });
}

const char* explorer_facts(const char* deck, const char* settings, const char* machine, int ranks) {
  return forge::answer([&] { return forge::facts_of(forge::request_of(deck, settings, machine, ranks)); });
}

// As "sent" of `forge show --json`.
const char* explorer_sent(const char* deck, const char* settings, const char* machine, int ranks) {
  return forge::answer([&] { return forge::sent_of(forge::request_of(deck, settings, machine, ranks)); });
}

// As `forge plan --json`, without warnings and changes.
const char* explorer_step(const char* deck, const char* settings, const char* machine, int ranks) {
  return forge::answer([&] {
    const forge::Request r = forge::request_of(deck, settings, machine, ranks);
    return forge::outcome_json(r.machine, forge::predicted(r)).text();
  });
}

// As `forge plan --json`.
const char* explorer_plan(const char* deck, const char* settings, const char* machine, int ranks) {
  return forge::answer([&] { return forge::plan_of(forge::request_of(deck, settings, machine, ranks)); });
}

const char* explorer_timeline(const char* deck, const char* settings, const char* machine, int ranks) {
  return forge::answer([&] { return forge::timeline_of(forge::request_of(deck, settings, machine, ranks)); });
}

// As an entry of "searches" of `forge plan --search --json`.
const char* explorer_search(const char* deck, const char* settings, const char* machine, int ranks, int best,
                            double seconds) {
  return forge::answer(
      [&] { return forge::search_of(forge::request_of(deck, settings, machine, ranks), best, seconds); });
}

const char* explorer_deck(const char* deck, const char* settings, const char* machine, int ranks) {
  return forge::answer([&] { return forge::deck_of(forge::request_of(deck, settings, machine, ranks)); });
}

const char* explorer_sized(const char* size) {
  return forge::answer([&] { return forge::sized_deck(size); });
}

const char* explorer_keys() {
  return forge::answer([&] { return forge::keys_json(); });
}
}
