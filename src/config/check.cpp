#include "config/check.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "config/batch_ramp.hpp"
#include "config/byte_vocabulary.hpp"
#include "config/check_parts.hpp"
#include "config/fp8_recipe.hpp"
#include "config/kernel_choice.hpp"
#include "config/keys.hpp"
#include "config/optimizer_table.hpp"
#include "config/path_hint.hpp"
#include "config/rate_points.hpp"
#include "config/recompute.hpp"
#include "config/schedule_name.hpp"

namespace forge {

namespace {

// checkpoint.directory: none stands for the whole section, but for where the initial values come from, and for the
// model that is written at the end.
void save_nothing_where_none(Deck& deck) {
  if (deck.checkpoint.directory != "none") return;
  CheckpointDeck nothing;
  nothing.model_from = deck.checkpoint.model_from;
  nothing.optimizer_from = deck.checkpoint.optimizer_from;
  nothing.reset_optimizer = deck.checkpoint.reset_optimizer;
  deck.checkpoint = std::move(nothing);
  deck.output.save_hf = false;
}

// Values out of their own range, from config.json or from a deck made by a program. Returns their sections: equations
// over them have no meaning.
std::set<std::string> check_ranges(const Deck& deck, Needs needs, bool with_model, Report& report) {
  std::set<std::string> sections;
  for (const auto& key : all_keys()) {
    if (key.section == "model" && !with_model) continue;
    const bool needed = key.required == Required::dimension ||
                        (key.required == Required::training && needs == Needs::training) ||
                        (key.required == Required::files && needs == Needs::training && deck.data.sources.empty());
    const std::string problem = range_problem(key, deck, needed);
    if (problem.empty()) continue;
    report.add(key.qualified() + " " + problem);
    sections.insert(key.section);
  }
  if (!with_model) sections.insert("model");
  return sections;
}

// A key that rules what isn't done would be ignored.
void check_checkpoint(const Deck& deck, Report& report) {
  const CheckpointDeck& c = deck.checkpoint;
  for (const auto& key : all_keys())
    if (key.section == "checkpoint" && !key.name.ends_with("_from") && c.directory.empty() && !is_default(key, deck))
      report.add(key.qualified() + " = " + value_text(key, deck) +
                 " without checkpoint.directory; legal: " + default_text(key) + ", or give the directory");
  if (c.keep_every_steps > 0 && c.keep_last == 0)
    report.add(equation("checkpoint.keep_every_steps", c.keep_every_steps) +
               " with checkpoint.keep_last = 0, which keeps all; legal: 0, or a keep_last of at least 1");
}

// Where the parameters come from.
void check_start(const Deck& deck, Report& report) {
  const std::string& from = deck.checkpoint.model_from;
  if (!from.empty() && deck.model.load_weights)
    report.add("checkpoint.model_from = " + from +
               " with model.load_weights = true: the parameters come from one of them; legal: load_weights = "
               "false, or no model_from");
  const std::string& optimizer = deck.checkpoint.optimizer_from;
  if (optimizer.empty()) return;
  const std::string key = "checkpoint.optimizer_from = " + optimizer;
  if (from.empty() && !deck.model.load_weights)
    report.add(key +
               " without the parameters that it belongs to; legal: with checkpoint.model_from, or with "
               "model.load_weights = true");
  if (!row_of(deck.optimizer.name).in_torch())
    report.add(key + " with optimizer.name = " + row_of(deck.optimizer.name).word +
               ", which torch.optim doesn't have; legal: " + torch_optimizers() + ", or no optimizer_from");
}

// ZeRO's keys depend on one another; the resolved deck says how gradients accumulate.
void check_zero(TrainDeck& t, Report& report) {
  const std::string stage = equation("train.zero_stage", t.zero_stage);
  if (t.accumulate == Accumulation::unsharded && t.zero_stage == 2)
    report.add("train.accumulate = unsharded with " + stage +
               ", where no rank keeps whole gradients; legal: automatic | sharded, or zero_stage 0, 1 or 3");
  if (t.accumulate == Accumulation::sharded && t.zero_stage == 0)
    report.add("train.accumulate = sharded with " + stage +
               ", where nothing is sharded; legal: automatic | unsharded, or zero_stage 1, 2 or 3");
  if (t.gather == GatherPolicy::step && t.zero_stage < 3)
    report.add("train.gather = step with " + stage +
               ", where parameters are not gathered; legal: microbatch, or zero_stage 3");
  if (t.accumulate == Accumulation::automatic)
    t.accumulate = t.zero_stage >= 2 ? Accumulation::sharded : Accumulation::unsharded;
}

// Model chunks per rank; a file says it itself.
void check_chunks(ScheduleDeck& s, Report& report) {
  const std::int64_t chunks = chunks_of(s.name);
  if (!s.file.empty() || chunks == 0) return;
  if (s.virtual_stages != 1 && s.virtual_stages != chunks)
    report.add(equation("schedule.virtual_stages", s.virtual_stages) + " with a schedule.name that has " +
               std::to_string(chunks) + "; legal: " + std::to_string(chunks) + ", or schedule.name: interleaved");
  s.virtual_stages = chunks;
}

// Keys of other optimizers than the deck's.
void check_optimizer_keys(const Deck& deck, Report& report) {
  const auto has = [](const OptimizerRow& row, const Key& key) {
    return std::any_of(row.keys.begin(), row.keys.end(), [&](const char* name) { return name && key.name == name; });
  };
  const OptimizerRow& chosen = row_of(deck.optimizer.name);
  for (const Key& key : all_keys()) {
    if (key.section != "optimizer" || has(chosen, key) || is_default(key, deck)) continue;
    std::string others;
    for (const OptimizerRow& row : optimizer_table)
      if (has(row, key)) others += (others.empty() ? "" : " | ") + std::string(row.word);
    if (others.empty()) continue;
    report.add(key.qualified() + " = " + value_text(key, deck) + " with optimizer.name = " + chosen.word +
               ", which doesn't read it; legal: " + default_text(key) + ", or optimizer.name " + others);
  }
}

// What belongs to some schedules alone, and the cooldown. A run that is cut short within its warm-up, or before its
// decay or cooldown has room, gets a warning (plan/warnings.cpp).
void check_rates(const Deck& deck, Report& report) {
  const OptimizerDeck& o = deck.optimizer;
  const std::string schedule = "optimizer.schedule = " + value_text(*find_key("optimizer", "schedule"), deck);
  const bool piecewise = o.schedule == RateSchedule::piecewise;
  if (piecewise && o.rate_points.empty())
    report.add(schedule + " without optimizer.rate_points; legal: points such as \"100:1, 1000:0.1\"");
  if (!piecewise && !o.rate_points.empty())
    report.add("optimizer.rate_points with " + schedule + ", which has none; legal: schedule: piecewise");
  if (o.restart_factor != 1 && o.schedule != RateSchedule::cosine_restarts)
    report.add("optimizer.restart_factor = " + value_text(*find_key("optimizer", "restart_factor"), deck) + " with " +
               schedule + ", which has no restarts; legal: 1, or schedule: cosine_restarts");
  if (o.wsd_tail != OptimizerDeck{}.wsd_tail && o.schedule != RateSchedule::wsd && o.cooldown_from == 0)
    report.add("optimizer.wsd_tail = " + value_text(*find_key("optimizer", "wsd_tail"), deck) + " with " + schedule +
               " and no cooldown, which have no tail; legal: " + default_text(*find_key("optimizer", "wsd_tail")) +
               ", schedule: wsd, or cooldown_from");
  if (o.cooldown_from > 0 && o.cooldown_from < o.warmup_steps)
    report.add(equation("optimizer.cooldown_from", o.cooldown_from) + " within the warm-up; legal: at least " +
               equation("optimizer.warmup_steps", o.warmup_steps));
  if (o.cooldown_from > 0 && row_of(o.name).averages)
    report.add(equation("optimizer.cooldown_from", o.cooldown_from) + " with optimizer.name = " + row_of(o.name).word +
               ", whose rate is constant behind warm-up; legal: 0");
  try {
    rate_points(o.rate_points);
  } catch (const BadInput& error) {
    report.add(error.what());
  }
}

// AdamW's state stands beside that of whole matrices; two other optimizers don't go together.
void check_groups(const Deck& deck, Report& report) {
  const OptimizerDeck& o = deck.optimizer;
  for (std::size_t i = 0; i < o.groups.size(); ++i) {
    if (!o.groups[i].optimizer || *o.groups[i].optimizer == o.name) continue;
    const bool legal = row_of(o.name).whole_matrices() && *o.groups[i].optimizer == OptimizerName::adamw;
    if (!legal)
      report.add("optimizer.groups[" + std::to_string(i) + "].optimizer = " + row_of(*o.groups[i].optimizer).word +
                 " with optimizer.name = " + row_of(o.name).word + "; legal: " + row_of(o.name).word +
                 (row_of(o.name).whole_matrices() ? " | adamw" : ""));
  }
}

// What bounds logits by scaling weights needs logits that follow them, and weights that are trained themselves.
void check_qk_clip(const Deck& deck, Report& report) {
  const OptimizerDeck& o = deck.optimizer;
  if (o.qk_clip == 0) return;
  const std::string clip = "optimizer.qk_clip = " + value_text(*find_key("optimizer", "qk_clip"), deck);
  if (deck.model.qk_norm)
    report.add(clip +
               " with model.qk_norm = true: normalised queries and keys are as long as before when their "
               "projections are scaled; legal: 0");
  if (row_of(o.name).averages)
    report.add(clip + " with optimizer.name = " + row_of(o.name).word +
               ", whose weights to use are averages of those that it would scale; legal: 0, or another optimizer");
}

// Where gradients are fp64, so is what an optimizer keeps; master weights in bf16 are those in use, and gradients in
// bf16 are of the type in which layers compute.
void check_state_types(const Deck& deck, Report& report) {
  const TrainDeck& t = deck.train;
  const OptimizerDeck& o = deck.optimizer;
  const bool fp8 = t.precision == PrecisionName::fp8;
  const bool fp64 = fp8 ? t.fp8_carrier == Fp8Carrier::fp64 : t.precision == PrecisionName::fp64;
  const bool wide = fp64 || t.precision == PrecisionName::fp32;
  const std::string with = " = bf16 with train.precision = " + value_text(*find_key("train", "precision"), deck) +
                           (fp8 && fp64 ? " and FORGE_FP8_CARRIER = fp64" : "");
  const std::string narrow = "; legal: default, or precision bf16 or fp8";
  const std::string clip = " = bf16 with optimizer.qk_clip = " + value_text(*find_key("optimizer", "qk_clip"), deck);
  if (o.moments == StateType::bf16 && fp64)
    report.add("optimizer.moments" + with + ", whose moments are fp64; legal: default, or precision fp32, bf16 or fp8");
  if (o.gradients == StateType::bf16 && wide)
    report.add("optimizer.gradients" + with + ", in which layers compute in another type" + narrow);
  if (o.gradients == StateType::bf16 && o.qk_clip > 0 && deck.output.norms_every_steps > 0)
    report.add("optimizer.gradients" + clip + " and " +
               equation("output.norms_every_steps", deck.output.norms_every_steps) +
               ": the change by clipping is summed where its gradient was; legal: default, qk_clip: 0, "
               "or norms_every_steps: 0");
  if (o.master_weights != StateType::bf16) return;
  if (wide) report.add("optimizer.master_weights" + with + ", whose weights in use have another type" + narrow);
  if (o.qk_clip > 0)
    report.add("optimizer.master_weights" + clip +
               ", which scales weights behind the update; legal: default, or qk_clip: 0");
}

void check_optimizer(Deck& deck, Report& report) {
  check_optimizer_keys(deck, report);
  OptimizerDeck& o = deck.optimizer;
  if (row_of(o.name).averages && o.schedule != RateSchedule::constant)
    report.add("optimizer.schedule = " + value_text(*find_key("optimizer", "schedule"), deck) +
               " with optimizer.name = " + row_of(o.name).word +
               ", whose rate is constant behind warm-up; legal: constant");
  if (row_of(o.name).averages && o.beta1 == 0)
    report.add(std::string("optimizer.beta1 = 0 with optimizer.name = ") + row_of(o.name).word +
               ", whose averages it divides by; legal: more than 0");
  check_rates(deck, report);
  check_groups(deck, report);
  check_qk_clip(deck, report);
  check_state_types(deck, report);
  if (o.decay_steps == 0) o.decay_steps = std::max<std::int64_t>(deck.train.steps - o.warmup_steps, 0);
}

// The sample at the end is text, as its prompt is. Whether model.hf has a tokenizer is seen when it is opened.
void check_sample_vocabulary(const Deck& deck, Report& report) {
  const OutputDeck& o = deck.output;
  const bool has_tokenizer = !deck.model.tokenizer.empty() || !deck.model.hf.empty();
  if (has_tokenizer || has_byte_vocabulary(deck) || (o.sample_tokens == 0 && o.sample_prompt.empty())) return;
  const bool prompt = o.sample_tokens == 0;
  report.add((prompt ? "output.sample_prompt" : equation("output.sample_tokens", o.sample_tokens)) + " with " +
             equation("model.vocabulary", deck.model.vocabulary) +
             ": a sample is text, and without model.tokenizer only tokens that are bytes can be read as text (" +
             byte_vocabulary_text + "); legal: model.tokenizer, or " + (prompt ? "no prompt" : "0"));
}

// Directories that a run makes.
void check_places(const Deck& deck, Report& report) {
  for (const auto& [key, path] : {std::pair{"output.directory", deck.output.directory},
                                  {"checkpoint.directory", deck.checkpoint.directory},
                                  {"data.packing_directory", deck.data.packing_directory},
                                  {"preference.reference", deck.preference.reference}})
    if (const std::string problem = unexpanded(path); !problem.empty())
      report.add(std::string(key) + " = " + path + ": " + problem);
}

void check_output(const Deck& deck, Report& report) {
  check_sample_vocabulary(deck, report);
  const auto prompt = static_cast<std::int64_t>(std::max<std::size_t>(deck.output.sample_prompt.size(), 1));
  const std::int64_t length = prompt + deck.output.sample_tokens;
  if (deck.output.sample_tokens > 0 && deck.model.positions == PositionKind::learned &&
      length > deck.model.max_positions)
    report.add(equation("output.sample_tokens", deck.output.sample_tokens) + " and the prompt take " +
               std::to_string(length) + " positions; legal: at most " +
               equation("model.max_positions", deck.model.max_positions));
  if (deck.output.sample_tokens > 0 && deck.model.rope_scaling == RopeScaling::longrope &&
      length > deck.model.rope_original_positions)
    report.add(equation("output.sample_tokens", deck.output.sample_tokens) + " and the prompt take " +
               std::to_string(length) + " positions with model.rope_scaling = longrope; legal: at most " +
               equation("model.rope_original_positions", deck.model.rope_original_positions));
}

// Recipes with a property, as a message has them.
std::string recipes_that(bool (*has)(const Fp8RecipeRow&)) {
  std::string words;
  for (const Fp8RecipeRow& recipe : fp8_recipes)
    if (has(recipe)) words += (words.empty() ? "" : " | ") + std::string(recipe.word);
  return words;
}

// Codes of weights are gathered for each use. A weight needs one code, whatever reads it.
void check_fp8_gather(const Deck& deck, Report& report) {
  const TrainDeck& t = deck.train;
  const std::string key = "train.fp8_gather = true with ";
  if (!t.fp8_gather) return;
  if (t.zero_stage < 3)
    report.add(key + equation("train.zero_stage", t.zero_stage) +
               ", where parameters are not gathered for each use; legal: false, or zero_stage 3");
  if (t.gather == GatherPolicy::step)
    report.add(key +
               "train.gather = step, which keeps gathered parameters beside the rank's own; legal: false, or "
               "gather: microbatch");
  if (!properties_of(t.fp8_recipe).has_one_code())
    report.add(key + "train.fp8_recipe = " + properties_of(t.fp8_recipe).word +
               ", whose weights have other scales in backward than forward; legal: false, or fp8_recipe: " +
               recipes_that([](const Fp8RecipeRow& r) { return r.has_one_code(); }));
}

// A row of codes holds its scales. They stand where the row does, and rounding them again must change nothing.
void check_fp8_dispatch(const Deck& deck, Report& report) {
  const TrainDeck& t = deck.train;
  const std::string key = "train.fp8_dispatch = true with ";
  if (!t.fp8_dispatch) return;
  if (!t.fp8_experts)
    report.add(key +
               "train.fp8_experts = false, whose experts read rows that aren't rounded; legal: false, or "
               "fp8_experts: true");
  if (t.fp8_scale == Fp8Scale::exact)
    report.add(key +
               "train.fp8_scale = exact, by which an expert would round a row to other numbers again; legal: "
               "false, or fp8_scale: power_of_two");
  if (deck.model.width < 4)
    report.add(key + equation("model.width", deck.model.width) +
               ": a row's codes and scale are longer than the row; legal: false, or a width from 4");
}

// Keys of fp8 rule nothing in another precision, and no product where all blocks are left out.
void check_fp8(const Deck& deck, Report& report) {
  const TrainDeck& t = deck.train;
  const ModelDeck& m = deck.model;
  if (t.precision != PrecisionName::fp8) {
    for (const Key& key : all_keys())
      if (key.section == "train" && std::string_view(key.name).starts_with("fp8_") && !is_default(key, deck))
        report.add(key.qualified() + " = " + value_text(key, deck) +
                   " without train.precision = fp8; legal: " + default_text(key) + ", or precision: fp8");
    return;
  }
  if (t.fp8_experts && m.experts == 0)
    report.add("train.fp8_experts = true with model.experts = 0: there are no products of experts; legal: false");
  const Fp8RecipeRow& recipe = properties_of(t.fp8_recipe);
  if (t.fp8_transposed && recipe.rows != RowScale::token_block)
    report.add("train.fp8_transposed = true with train.fp8_recipe = " + std::string(recipe.word) +
               ", which has no transposed copies; legal: false, or fp8_recipe: block");
  check_fp8_gather(deck, report);
  check_fp8_dispatch(deck, report);
  if (!recipe.has_history() && t.fp8_history != TrainDeck().fp8_history)
    report.add(equation("train.fp8_history", t.fp8_history) + " with a train.fp8_recipe that has no history; legal: " +
               std::to_string(TrainDeck().fp8_history) + ", or fp8_recipe: delayed");
  const std::int64_t blocks = m.layers + m.mtp_depth;
  if (t.fp8_first_layers_bf16 + t.fp8_last_layers_bf16 >= blocks && blocks > 0)
    report.add(equation("train.fp8_first_layers_bf16", t.fp8_first_layers_bf16) + " + " +
               equation("train.fp8_last_layers_bf16", t.fp8_last_layers_bf16) + " leave none of the " +
               std::to_string(blocks) + " blocks in fp8; legal: a sum of less than " + std::to_string(blocks) +
               ", or precision: bf16");
}

}  // namespace

std::set<std::string> check_values(Deck& deck, Needs needs, bool has_model, Report& report) {
  save_nothing_where_none(deck);
  const std::set<std::string> bad = check_ranges(deck, needs, has_model, report);
  const auto good = [&](std::initializer_list<const char*> sections) {
    return std::none_of(sections.begin(), sections.end(), [&](const char* name) { return bad.count(name) > 0; });
  };
  if (good({"model", "train"})) check_model(deck.model, deck.train.sequence_tokens, report);
  if (good({"model", "train", "optimizer"})) check_epsilons(deck, needs == Needs::training, report);
  if (good({"model", "train", "mesh", "optimizer", "output"})) check_linear(deck, report);
  if (good({"model", "train"})) check_recompute(deck, report);
  check_start(deck, report);
  if (good({"model", "train", "adapter", "optimizer"})) check_adapter(deck, needs == Needs::training, report);
  if (good({"train", "machine"})) report.collect([&] { check_kernels(deck, asked_kernels(), report); });
  if (good({"model", "train"})) check_fp8(deck, report);
  if (needs == Needs::training) {
    if (good({"checkpoint"})) check_checkpoint(deck, report);
    if (good({"train"})) check_zero(deck.train, report);
    if (good({"train"})) check_ramp(deck.train, report);
    if (good({"train", "checkpoint"})) check_spikes(deck, report);
    if (good({"train"})) check_replicas(deck, report);
    if (good({"schedule"})) check_chunks(deck.schedule, report);
    if (good({"train", "optimizer"})) check_optimizer(deck, report);
    if (good({"model", "train", "optimizer"})) check_frozen(deck, report);
    if (good({"model", "train", "data"})) check_data(deck, report);
    if (good({"model", "train", "data", "preference"})) check_preference(deck, report);
    if (good({"model", "output"})) check_output(deck, report);
    check_places(deck, report);
  }
  return bad;
}

}  // namespace forge
