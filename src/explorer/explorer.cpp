#include <emscripten.h>

#include <array>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/model_deck.hpp"
#include "app/plan_limits.hpp"
#include "app/plan_text.hpp"
#include "app/short_deck.hpp"
#include "app/show_parts.hpp"
#include "config/keys.hpp"
#include "config/read.hpp"
#include "config/text.hpp"
#include "config/values.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/parse.hpp"
#include "core/to_size.hpp"
#include "hf/json_input.hpp"
#include "nn/units.plan.hpp"
#include "plan/rank_memory.hpp"
#include "predict/advice.hpp"
#include "predict/dense_deck.hpp"
#include "predict/dense_shape.hpp"
#include "predict/search_space.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/repetition.hpp"

// The explorer's answers to its page, as functions from texts to JSON: the same planner as `forge plan` and `forge
// show`. Files of inputs/ (machines, programs) come first, into the module's own file system. A wrong input gives
// {"error": "…"}. An answer is good until the next question.

// Gives a search's partial result to the module's tell().
EM_JS(void, explorer_tell, (const char* text), {
  if (Module["tell"]) Module["tell"](UTF8ToString(text));
});

namespace forge {

namespace {

// A field's text; "" where it is empty.
std::string typed(const JsonObject& form, const char* field) {
  return std::string(trimmed(form.text(field, "")));
}

// Of an option of forge plan.
double number_of(const JsonObject& form, const char* option, double otherwise) {
  const std::string text = typed(form, option);
  if (text.empty()) return otherwise;
  if (const std::optional<double> number = parse_number(text)) return *number;
  throw BadInput("--" + std::string(option) + " = " + shown(text) + "; legal: a number");
}

constexpr std::int64_t most_ranks = 1 << 20;

// 0: as many as the deck's mesh asks for.
int ranks_typed(const JsonObject& form) {
  const std::string text = typed(form, "ranks");
  if (text.empty()) return 0;
  const std::optional<std::int64_t> ranks = parse_whole(text);
  if (!ranks || *ranks < 1 || *ranks > most_ranks)
    throw BadInput("--ranks = " + shown(text) + "; legal: a whole number from 1 to " + std::to_string(most_ranks));
  return static_cast<int>(*ranks);
}

// The deck of a dense model of a size as --models takes it, with the batch of that size.
std::string sized_deck(const std::string& word) {
  const auto size = size_of_word(word);
  if (!size || *size < least_dense_parameters || *size > most_dense_parameters)
    throw BadInput("a size is a number and B or T, from 1B to 1T: 8B, 1.5T");
  const Deck deck = dense_deck(size_text(*size), *size, {});
  return dense_deck_text(size_text(*size), *size, deck.train.global_batch_sequences);
}

std::string deck_of_config(const std::string& config, int ranks) {
  if (trimmed(config).empty()) throw BadInput("paste a config.json of Hugging Face");
  std::filesystem::create_directories("model");
  std::ofstream("model/config.json", std::ios::binary) << config;
  return model_deck("model", ranks) + "data: {files: [train.bin]}\n";
}

// parameter_units of the model that was asked about last: of many experts they take a while, and most questions change
// the layout alone.
class KnownUnits {
 public:
  const std::vector<Unit>& of(const Deck& deck) {
    std::string model;
    for (const Key& key : all_keys())
      if (key.section == "model" || key.section == "adapter") model += value_text(key, deck) + '\n';
    if (model != model_) {
      units_ = parameter_units(resolve_model(deck.model));
      model_ = model;
    }
    return units_;
  }

 private:
  std::string model_;
  std::vector<Unit> units_;
};

// A question of the page, as JSON of texts: the model as `deck` (a deck's text), `size` or `config` (a config.json);
// `settings`, "section.key=value" one a line; and options of forge plan: machine, ranks, as, imbalance, best, seconds.
class Question {
 public:
  Question(const std::string& text, KnownUnits& units) : units_(units) {
    Report report;
    const nlohmann::json json = parse_json(text, "the question", {});
    const JsonObject form(json, "the question", report);
    machine_ = read_machine(form.text("machine", ""));
    if (const std::string program = typed(form, "as"); !program.empty()) machine_.program = read_program(program);
    check_imbalance(machine_.imbalance = number_of(form, "imbalance", 1));
    check_best(best_ = number_of(form, "best", SearchOptions().best));
    check_seconds(seconds_ = number_of(form, "seconds", SearchOptions().seconds));
    ranks_ = ranks_typed(form);
    text_ = form.has("size")     ? sized_deck(typed(form, "size"))
            : form.has("config") ? deck_of_config(form.text("config", ""), ranks_)
                                 : form.text("deck", "");
    const std::string settings = form.text("settings", "");
    for (const std::string_view line : parts_of(settings, '\n'))
      if (const std::string_view setting = trimmed(line); !setting.empty()) settings_.emplace_back(setting);
    report.throw_if_any("the question");
  }

  const Machine& machine() const { return machine_; }
  const Deck& deck() {
    if (!deck_) deck_ = checked_deck(ranks_);
    return *deck_;
  }
  int ranks() { return static_cast<int>(ranks_of(deck().mesh)); }
  // With as few microbatches as memory and traffic need (schedule/repetition.hpp).
  const RunSetup& setup() {
    if (!setup_) setup_ = setup_of(repetition_of(deck(), microbatches_of(deck())).few);
    return *setup_;
  }
  const Outcome& outcome() {
    if (!outcome_) outcome_ = outcome_of(machine_, setup_of(microbatches_of(deck())));
    return *outcome_;
  }

  // Of all layouts, whatever the settings' is.
  SearchResult found(const std::function<void(const SearchResult&, int)>& tell) {
    const int ranks = ranks_ > 0 ? ranks_ : static_cast<int>(ranks_of(checked_deck(0).mesh));
    for (const std::string& setting : plain_settings()) settings_.push_back(setting);
    SearchOptions options;
    options.ranks = ranks;
    options.best = static_cast<int>(best_);
    options.seconds = seconds_;
    options.tell = [&](const SearchResult& so_far) { tell(so_far, ranks); };
    return search(machine_, checked_deck(1), options);
  }

 private:
  RunSetup setup_of(std::int64_t microbatches) {
    const std::vector<Unit>& units = units_.of(deck());
    return on_devices(make_setup(deck(), 0, lowered_schedule(deck(), microbatches), asked_kernels(), &units),
                      machine_.capability);
  }
  Deck checked_deck(int ranks) const {
    Deck deck = read_deck(text_, "the deck", settings_);
    deck.mesh.node_ranks = machine_.ranks_per_node;
    const std::int64_t asked = ranks_of(deck.mesh);
    check_deck(deck, ranks > 0 ? ranks : asked >= 1 && asked <= most_ranks ? static_cast<int>(asked) : 1);
    check_imbalance(machine_.imbalance, deck.model, "the deck");
    return deck;
  }

  KnownUnits& units_;
  Machine machine_;
  int ranks_ = 0;
  double best_ = 0, seconds_ = 0;
  std::string text_;
  std::vector<std::string> settings_;
  std::optional<Deck> deck_;
  std::optional<RunSetup> setup_;
  std::optional<Outcome> outcome_;
};

// Memory of the stages and bytes that ranks send.
std::string facts_of(Question& q) {
  const RunSetup& setup = q.setup();
  const Deck& deck = setup.deck;
  JsonLine all;
  all.add("ranks", q.ranks()).add("ranks_per_node", q.machine().ranks_per_node);
  all.add("parameters", parameter_count(setup.units)).add("experts", deck.model.experts);
  all.add("microbatches", setup.microbatches).add("tokens_per_step", setup.tokens_per_step());
  all.add("usual_tokens", dense_step_tokens(static_cast<double>(parameter_count(setup.units))));
  all.add("usable_bytes", usable_memory(q.machine(), q.ranks()));
  std::vector<MemoryPlan> stages;
  std::vector<RankShare> shares;
  const RankMemory largest = memory_on(q.machine(), setup, [&](const MemoryPlan& plan, const RankShare& share) {
    stages.push_back(plan);
    shares.push_back(share);
  });
  all.add("memory", JsonLine().add("ranks", stages_json(stages)));
  std::vector<JsonLine> libraries;
  for (const Allowance& a : largest.libraries)
    libraries.push_back(JsonLine().add("name", a.name).add("bytes", a.bytes));
  all.add("allowances", libraries).add("peak_bytes", largest.total()).add("sent", sent_json(setup, shares));
  return all.add("deck", deck_json(deck)).text();
}

// As `forge plan --json`, without warnings and changes.
std::string step_of(Question& q) {
  return outcome_json(q.machine(), q.outcome()).text();
}

// As `forge plan --json`.
std::string plan_of(Question& q) {
  const Outcome& outcome = q.outcome();
  const std::vector<PredictedNeighbour> neighbours = predicted_neighbours(q.machine(), outcome);
  return plan_json(q.machine(), outcome, neighbours, all_warnings(q.machine(), outcome, neighbours));
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
std::string timeline_of(Question& q) {
  const Outcome& outcome = q.outcome();
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

// An entry of "searches" of `forge plan --search --json`; partial results have the same form.
std::string search_of(Question& q) {
  int asked = 0;
  const SearchResult result = q.found([&](const SearchResult& so_far, int ranks) {
    asked = ranks;
    explorer_tell(search_json(q.machine(), so_far, ranks).text().c_str());
  });
  return search_json(q.machine(), result, asked).text();
}

// A deck that says everything itself.
std::string deck_of(Question& q) {
  if (q.deck().model.hf.empty()) return JsonLine().add("deck", short_deck(q.deck(), q.ranks())).text();
  Deck deck = without_directory(q.deck());
  deck.mesh.node_ranks = q.machine().ranks_per_node;
  check_deck(deck, q.ranks());
  return JsonLine().add("deck", short_deck(deck, q.ranks())).text();
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
  } catch (const std::bad_alloc&) {
    text = JsonLine().add("error", "the page has no memory for so many layers and microbatches; forge plan has").text();
  } catch (const std::exception& error) {
    text = JsonLine().add("error", std::string(error.what())).text();
  }
  return text.c_str();
}

// The last one is kept: the page asks for the step, its timeline and its plan one after the other.
KnownUnits known_units;
std::unique_ptr<Question> last;
std::string last_text;

Question& question_of(const std::string& text) {
  if (!last || text != last_text) {
    last.reset();
    last = std::make_unique<Question>(text, known_units);
    last_text = text;
  }
  return *last;
}

std::string answer_of(const std::string& what, const std::string& text) {
  constexpr std::pair<const char*, std::string (*)(Question&)> answers[] = {
      {"facts", facts_of}, {"step", step_of},     {"timeline", timeline_of},
      {"plan", plan_of},   {"search", search_of}, {"deck", deck_of}};
  for (const auto& [name, f] : answers)
    if (what == name) return f(question_of(text));
  return keys_json();
}

}  // namespace

}  // namespace forge

extern "C" {

// Puts a file where the planner looks for it: inputs/machines/h100_8.yaml.
const char* explorer_file(const char* path, const char* text) {
  return forge::answer([&] {
    const std::filesystem::path file(path);
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    forge::last.reset();
    return std::string("{}");
  });
}

// facts, step, timeline, plan, search or deck of a question; keys: of the deck.
const char* explorer_answer(const char* what, const char* question) {
  return forge::answer([&] { return forge::answer_of(what, question); });
}
}
