#include "config/check.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "config/check_parts.hpp"
#include "config/hf_config.hpp"
#include "config/keys.hpp"
#include "config/text.hpp"

namespace forge {

namespace {

// Whether config.json (if the deck names one) could be read.
bool read_model(Deck& deck, Report& report) {
  if (deck.model.hf.empty()) return true;
  try {
    deck.model = read_hf_config(deck.model.hf, deck.model);
    return true;
  } catch (const BadInput& e) {
    report.add("", e.what());
    return false;
  }
}

// Values out of their own range, from config.json or from a deck made by a program. Returns their sections: equations
// over them have no meaning.
std::set<std::string> check_ranges(const Deck& deck, Needs needs, bool with_model, Report& report) {
  std::set<std::string> sections;
  for (const auto& key : all_keys()) {
    if (key.section == "model" && !with_model) continue;
    const bool needed =
        key.required == Required::dimension || (key.required == Required::training && needs == Needs::training);
    const std::string problem = range_problem(key, deck, needed);
    if (problem.empty()) continue;
    report.add("", key.qualified() + " " + problem);
    sections.insert(key.section);
  }
  if (!with_model) sections.insert("model");
  return sections;
}

void refuse(bool given, const std::string& text, Report& report, const char* legal) {
  if (given) report.add("", text + ": not available in this version; legal: " + legal);
}

// What the design has and this version doesn't.
void check_available(const Deck& deck, Report& report) {
  const MeshDeck& mesh = deck.mesh;
  for (const auto& [key, ranks] : {std::pair{"mesh.pp", mesh.pp},
                                   {"mesh.cp", mesh.cp},
                                   {"mesh.tp", mesh.tp},
                                   {"mesh.ep", mesh.ep},
                                   {"mesh.etp", mesh.etp}})
    refuse(ranks > 1, equation(key, ranks), report, "1");
  const ScheduleName name = deck.schedule.name;
  refuse(name == ScheduleName::interleaved, "schedule.name = interleaved", report, "gpipe | 1f1b | zero_bubble");
  refuse(name == ScheduleName::zb_v, "schedule.name = zb_v", report, "gpipe | 1f1b | zero_bubble");
  refuse(deck.schedule.chunks_per_stage > 1, equation("schedule.chunks_per_stage", deck.schedule.chunks_per_stage),
         report, "1");
  refuse(deck.schedule.split != ScheduleDeck{}.split, "schedule.split = " + shown(deck.schedule.split), report, "even");
  refuse(deck.train.zero_stage > 0, equation("train.zero_stage", deck.train.zero_stage), report, "0");
  refuse(deck.train.accumulate == Accumulation::sharded, "train.accumulate = sharded", report, "unsharded");
  for (const auto& key : all_keys())
    if (key.section == "checkpoint")
      refuse(!is_default(key, deck), key.qualified() + " = " + value_text(key, deck), report,
             default_text(key).c_str());
}

void check_batch(const Deck& deck, Report& report) {
  const TrainDeck& t = deck.train;
  const std::int64_t replicas = deck.mesh.dp_replicate * deck.mesh.dp_shard;
  // Else the world is wrong, and reported.
  if (replicas < 1 || replicas > std::numeric_limits<int>::max()) return;
  const std::int64_t unit = t.microbatch_sequences * replicas;
  if (t.global_batch_sequences % unit != 0)
    report.add("", equation("train.global_batch_sequences", t.global_batch_sequences) + " is no multiple of " +
                       equation("train.microbatch_sequences", t.microbatch_sequences) + " x data-parallel size " +
                       std::to_string(replicas) + " = " + std::to_string(unit) +
                       "; nearest legal: " + nearest_multiples(t.global_batch_sequences, unit));
}

void check_optimizer(Deck& deck, Report& report) {
  OptimizerDeck& o = deck.optimizer;
  const std::int64_t steps = deck.train.steps;
  if (o.warmup_steps > steps)
    report.add(
        "", equation("optimizer.warmup_steps", o.warmup_steps) + "; legal: at most " + equation("train.steps", steps));
  if (o.schedule == RateSchedule::wsd && o.decay_steps > 0 && o.warmup_steps + o.decay_steps > steps)
    report.add("", equation("optimizer.warmup_steps", o.warmup_steps) + " + " +
                       equation("optimizer.decay_steps", o.decay_steps) + " pass " + equation("train.steps", steps) +
                       " with wsd; nearest legal decay_steps: " +
                       std::to_string(std::max<std::int64_t>(steps - o.warmup_steps, 0)));
  if (o.decay_steps == 0) o.decay_steps = std::max<std::int64_t>(steps - o.warmup_steps, 0);
}

bool is_npy(const std::string& path) {
  return path.size() > 4 && path.compare(path.size() - 4, 4, ".npy") == 0;
}

void check_data(const Deck& deck, Report& report) {
  const DataDeck& d = deck.data;
  for (const auto& [key, files] : {std::pair{"data.files", &d.files}, {"data.validation_files", &d.validation_files}})
    for (const auto& file : *files)
      if (d.dtype == TokenType::none && !is_npy(file)) {
        report.add("", std::string(key) + " has " + shown(file) +
                           ", which is no .npy file and doesn't name its type, and data.dtype is not given; legal: "
                           "uint16 | uint32");
        break;
      }
  if (d.document_end_token >= deck.model.vocabulary)
    report.add("", equation("data.document_end_token", d.document_end_token) + "; legal: less than " +
                       equation("model.vocabulary", deck.model.vocabulary) + ", or -1");
  if (deck.train.validate_every_steps > 0 && d.validation_files.empty())
    report.add("", equation("train.validate_every_steps", deck.train.validate_every_steps) +
                       " without data.validation_files; legal: 0, or give the files");
}

// The sample at the end takes its prompt as bytes.
void check_output(const Deck& deck, Report& report) {
  if (deck.output.sample_tokens > 0 && deck.model.vocabulary < 256)
    report.add("", equation("output.sample_tokens", deck.output.sample_tokens) + " with " +
                       equation("model.vocabulary", deck.model.vocabulary) +
                       ": a sample is made of bytes; legal: 0, or a vocabulary of at least 256");
  const auto prompt = static_cast<std::int64_t>(std::max<std::size_t>(deck.output.sample_prompt.size(), 1));
  const std::int64_t length = prompt + deck.output.sample_tokens;
  if (deck.output.sample_tokens > 0 && deck.model.positions == PositionKind::learned &&
      length > deck.model.max_positions)
    report.add("", equation("output.sample_tokens", deck.output.sample_tokens) + " and the prompt take " +
                       std::to_string(length) + " positions; legal: at most " +
                       equation("model.max_positions", deck.model.max_positions));
  if (deck.output.save_hf)
    if (const auto obstacle = hf_obstacle(deck.model); !obstacle.empty())
      report.add("", "output.save_hf = true, but " + obstacle);
}

std::int64_t product(const MeshDeck& m, std::int64_t dp_shard) {
  // Each axis has at most 2^20 ranks, so a double tells a product beyond 64 bits.
  const double estimate = static_cast<double>(m.pp) * static_cast<double>(m.dp_replicate) *
                          static_cast<double>(dp_shard) * static_cast<double>(m.cp) * static_cast<double>(m.tp);
  return estimate < 1e18 ? m.pp * m.dp_replicate * dp_shard * m.cp * m.tp : std::int64_t{1'000'000'000'000'000'000};
}

std::string product_text(const MeshDeck& m, bool with_shard) {
  const std::string shard = with_shard ? " x " + equation("dp_shard", m.dp_shard) : "";
  return equation("mesh.pp", m.pp) + " x " + equation("dp_replicate", m.dp_replicate) + shard + " x " +
         equation("cp", m.cp) + " x " + equation("tp", m.tp) + " = " +
         std::to_string(product(m, with_shard ? m.dp_shard : 1));
}

std::string launch_text(std::int64_t ranks) {
  const std::string n = std::to_string(ranks);
  return "start " + n + " ranks (mpirun -n " + n + ", or srun --ntasks=" + n + "; srun -N alone starts one a node)";
}

}  // namespace

void check_mesh(MeshDeck& m, int world_size, Report& report) {
  if (m.etp == 0) m.etp = m.tp;
  const std::int64_t others = product(m, 1);
  const std::string world = "world size " + std::to_string(world_size);
  if (m.dp_shard == 0) {
    report.add("", "mesh.dp_shard = 0; legal: at least 1, or -1 for what the other axes leave");
  } else if (m.dp_shard == -1) {
    if (world_size % others == 0)
      m.dp_shard = world_size / others;
    else
      report.add("", world + " is no multiple of " + product_text(m, false) +
                         "; nearest legal world size: " + nearest_multiples(world_size, others) + ": " +
                         launch_text((world_size + others - 1) / others * others));
  } else if (product(m, m.dp_shard) != world_size) {
    const bool divides = world_size % others == 0;
    report.add("", world + " is not " + product_text(m, true) + "; " + launch_text(product(m, m.dp_shard)) +
                       (divides ? ", or set mesh.dp_shard to " + std::to_string(world_size / others) + " or -1" : ""));
  }
}

void check_deck(Deck& deck, int world_size, Needs needs) {
  Report report;
  const bool has_model = read_model(deck, report);
  const std::set<std::string> bad = check_ranges(deck, needs, has_model, report);
  const auto good = [&](std::initializer_list<const char*> sections) {
    return std::none_of(sections.begin(), sections.end(), [&](const char* name) { return bad.count(name) > 0; });
  };
  if (good({"model", "train"})) check_model(deck.model, deck.train.sequence_tokens, report);
  if (needs == Needs::training) {
    check_available(deck, report);
    if (good({"mesh"})) check_mesh(deck.mesh, world_size, report);
    if (good({"mesh", "train"})) check_batch(deck, report);
    if (good({"train", "optimizer"})) check_optimizer(deck, report);
    if (good({"model", "train", "data"})) check_data(deck, report);
    if (good({"model", "output"})) check_output(deck, report);
  }
  report.throw_if_any("the deck");
}

}  // namespace forge
