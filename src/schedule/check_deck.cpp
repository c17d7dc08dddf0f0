#include "schedule/check_deck.hpp"

#include <algorithm>
#include <string>

#include "config/batch_ramp.hpp"
#include "config/check.hpp"
#include "config/check_parts.hpp"
#include "config/schedule_name.hpp"
#include "core/bytes.hpp"
#include "hf/config.hpp"
#include "hf/model_files.hpp"
#include "layout/check_layout.hpp"
#include "layout/split.hpp"
#include "nn/units.plan.hpp"
#include "schedule/from_deck.hpp"

namespace forge {

namespace {

constexpr std::int64_t most_stages = 1 << 16, most_slots = 1 << 20;

// Calls f and reports what it refuses. Returns whether it didn't.
template <class F>
bool report_of(Report& report, F&& f) {
  try {
    f();
    return true;
  } catch (const BadInput& error) {
    report.add("", error.what());
    return false;
  }
}

// Whether config.json (if the deck names one) could be read. Where the deck says nothing else, weights that stand
// beside it are what a run starts with.
bool read_model(Deck& deck, Report& report) {
  ModelDeck& model = deck.model;
  if (model.hf.empty()) return true;
  if (!report_of(report, [&] { model = read_hf_config(model.hf, model); })) return false;
  const bool says = std::find(model.given.begin(), model.given.end(), "load_weights") != model.given.end();
  if (!says && deck.checkpoint.model_from.empty()) model.load_weights = weight_files(model.hf) != WeightFiles::none;
  return true;
}

void check_save_hf(const Deck& deck, Report& report) {
  if (!deck.output.save_hf) return;
  report_of(report, [&] {
    const std::string obstacle = export_obstacle(deck.model, parameter_units(resolve_model(deck.model)));
    if (!obstacle.empty()) throw BadInput("output.save_hf = true, but " + obstacle);
  });
}

// A schedule lists every (stage, microbatch): numbers beyond any machine are told before the list is made.
bool has_size(const Deck& deck, std::int64_t stages, std::int64_t microbatches, Report& report) {
  if (stages > most_stages) {
    report.add("", equation("mesh.pp", deck.mesh.pp) + " x " +
                       equation("schedule.virtual_stages", deck.schedule.virtual_stages) + " = " +
                       std::to_string(stages) + " stages; legal: at most " + std::to_string(most_stages));
    return false;
  }
  if (microbatches > most_slots / stages) {
    report.add("", std::to_string(microbatches) +
                       " microbatches a step (train.global_batch_sequences / (data-parallel "
                       "size x train.microbatch_sequences)) on " +
                       std::to_string(stages) + " stages; legal: at most " + std::to_string(most_slots / stages));
    return false;
  }
  return true;
}

// Steps of a ramp have schedules of their own. `unit`: what batches are multiples of, else it is reported.
void check_ramp_schedules(const Deck& deck, std::int64_t unit, Report& report) {
  for (std::size_t i = 0; i < deck.train.batch_ramp.size(); ++i) {
    const std::int64_t batch = deck.train.batch_ramp[i].global_batch_sequences;
    if (batch % unit != 0 || batch >= deck.train.global_batch_sequences) continue;
    try {
      schedule_of(deck, static_cast<int>(deck.mesh.pp), static_cast<int>(microbatches_of(deck, batch)));
    } catch (const BadInput& error) {
      report.add("", equation(ramp_key(i).c_str(), batch) + ": " + error.what());
    }
  }
}

// A stage that only hands on what it gets is somebody's intention where the split is written out, else a mistake.
void check_stages(const Deck& deck, const std::vector<StageContent>& stages) {
  const auto empty =
      std::count_if(stages.begin(), stages.end(), [](const StageContent& s) { return s.passes_through(); });
  if (empty == 0) return;
  const std::int64_t chunks = static_cast<std::int64_t>(stages.size()) / deck.mesh.pp;
  throw BadInput(equation("mesh.pp", deck.mesh.pp) + (chunks > 1 ? " x " + counted(chunks, "chunk") : "") + " = " +
                 counted(static_cast<std::int64_t>(stages.size()), "stage") + " for " +
                 equation("model.layers", deck.model.layers) + ": " + counted(empty, "stage") + " would hold nothing" +
                 "; legal: at most " + counted(static_cast<std::int64_t>(stages.size()) - empty, "stage") +
                 ", or a schedule.split that is written out, such as \"Et*4|||L\"");
}

// Passes that run in pairs belong to schedules that have them side by side.
void check_overlap(const Deck& deck, std::int64_t microbatches, Report& report) {
  const TrainDeck& t = deck.train;
  if (t.overlap == Overlap::none) return;
  const auto refuse = [&](bool wrong, const std::string& with, const std::string& legal) {
    if (wrong) report.add("", "train.overlap = pairs with " + with + "; legal: none, or " + legal);
  };
  const ScheduleName schedule = deck.schedule.name;
  refuse(!deck.schedule.file.empty(), "schedule.file, which has no pairs", "a schedule.name");
  refuse(!has_pairs(schedule), "schedule.name = " + std::string(name_of(schedule)),
         "schedule.name 1f1b, interleaved, zero_bubble or zb_v");
  const int least = least_paired(schedule, static_cast<int>(deck.mesh.pp));
  refuse(microbatches < least, counted(microbatches, "microbatch", "microbatches") + " a step",
         "at least " + std::string(least > 2 ? "2 mesh.pp - 1 = " : "") + std::to_string(least));
  refuse(deck.model.tied_embeddings && schedule == ScheduleName::zb_v,
         "model.tied_embeddings = true and schedule.name = zb_v, where gradients of both passes add to the table in "
         "another order",
         "schedule.name 1f1b, interleaved or zero_bubble");
}

// As many blocks as some stage has can be recomputed whole.
void check_full_layers(const Deck& deck, const std::vector<StageContent>& stages) {
  int most = 0;
  for (const StageContent& stage : stages) most = std::max(most, stage.layers);
  if (deck.train.recompute_full_layers > most)
    throw BadInput(equation("train.recompute_full_layers", deck.train.recompute_full_layers) +
                   ", where the largest stage has " + counted(most, "layer") + "; legal: 0 to " + std::to_string(most));
}

void check_schedule(Deck& deck, Report& report) {
  const std::int64_t unit = deck.train.microbatch_sequences * deck.mesh.dp_replicate * deck.mesh.dp_shard;
  const bool whole = deck.train.global_batch_sequences % unit == 0;  // else reported
  std::int64_t stages = deck.mesh.pp * deck.schedule.virtual_stages;
  if (!has_size(deck, stages, whole ? microbatches_of(deck) : 1, report)) return;
  if (whole) check_overlap(deck, microbatches_of(deck), report);
  if (whole) {
    const bool good = report_of(report, [&] {
      const Schedule schedule =
          schedule_of(deck, static_cast<int>(deck.mesh.pp), static_cast<int>(microbatches_of(deck)));
      deck.schedule.virtual_stages = schedule.chunks_per_rank;
      stages = schedule.stages();
    });
    if (good) check_ramp_schedules(deck, unit, report);
  }
  report_of(report, [&] {
    const auto split = split_layers(deck.schedule.split, static_cast<int>(deck.model.layers), static_cast<int>(stages),
                                    static_cast<int>(deck.model.mtp_depth));
    if (deck.schedule.split == "even" || deck.schedule.split == "balanced") check_stages(deck, split);
    check_full_layers(deck, split);
  });
}

}  // namespace

void check_deck(Deck& deck, int world_size, Needs needs) {
  Report report;
  const bool has_model = read_model(deck, report);
  const std::set<std::string> bad = check_values(deck, needs, has_model, report);
  const auto good = [&](const char* section) { return bad.count(section) == 0; };
  if (needs == Needs::training && good("model") && good("output")) check_save_hf(deck, report);
  if (needs == Needs::training && good("model") && good("mesh") && good("train") && deck.model.kv_heads > 0) {
    const auto mesh = check_layout(deck, world_size, report);
    if (mesh && good("schedule")) check_schedule(deck, report);
  }
  report.throw_if_any("the deck");
}

}  // namespace forge
