#include "config/keys.hpp"
#include "config/optimizer_table.hpp"
#include "core/build_info.hpp"
#include "core/json.hpp"
#include "core/to_size.hpp"
#include "model/flops.hpp"
#include "tokenizer/unicode.hpp"
#include "train/job_report.hpp"

namespace forge {

namespace {

// JSON is UTF-8, names of files need not be.
JsonLine& add_text(JsonLine& json, const char* key, const std::string& text) {
  return json.add(key, replace_ill_formed(text));
}

void add_texts(JsonLine& json, const char* key, const std::vector<std::string>& texts) {
  std::vector<std::string> list;
  for (const std::string& text : texts) list.push_back(replace_ill_formed(text));
  json.add(key, list);
}

void add_start(JsonLine& json, const JobRecord& r) {
  json.add("started", iso_time(r.started)).add("started_seconds", r.started);
  add_texts(json, "command", r.arguments);
  add_text(json, "directory", r.directory);
  add_text(json, "deck", r.deck);
  if (r.job.empty())
    json.add_raw("batch_system", "null").add_raw("job", "null");
  else
    add_text(json.add("batch_system", r.batch_system), "job", r.job);
  json.add("nodes", r.nodes);
  add_texts(json, "hosts", r.hosts);
}

void add_machine(JsonLine& json, const JobFacts& f) {
  json.add("ranks", f.ranks).add("threads", f.threads);
  add_text(json, "device", f.device.name);
  add_text(json, "device_features", f.device.features).add("device_cores", f.device.cores);
  json.add("peak_flops", f.peak_flops).add("peak_measured", f.peak_measured);
}

void add_layout(JsonLine& json, const RunSetup& s) {
  const MeshShape& m = s.mesh;
  JsonLine mesh;
  mesh.add("pp", m.pp).add("dp_replicate", m.dp_replicate).add("dp_shard", m.dp_shard).add("cp", m.cp).add("tp", m.tp);
  mesh.add("ep", m.ep).add("etp", m.etp).add("edp", m.edp);
  json.add("mesh", mesh).add("zero_stage", s.deck.train.zero_stage).add("microbatches", s.microbatches);
}

void add_model(JsonLine& json, const RunSetup& s) {
  const ModelSpec& m = s.spec;
  json.add("parameters", parameter_count(s.units)).add("layers", m.L()).add("width", m.C()).add("heads", m.H());
  json.add("kv_heads", m.K()).add("head_dim", m.D()).add("ffn", m.F()).add("vocabulary", m.V()).add("experts", m.E());
  json.add("flops_per_token", training_flops_per_token(m, s.units, s.deck.train.sequence_tokens));
}

void add_training(JsonLine& json, const RunSetup& s, const JobFacts& f) {
  const TrainDeck& t = s.deck.train;
  json.add("precision", value_text(*find_key("train", "precision"), s.deck));
  json.add("optimizer", row_of(s.deck.optimizer.name).word);
  json.add("seed", t.seed).add("steps", t.steps);
  json.add("global_batch_sequences", t.global_batch_sequences).add("microbatch_sequences", t.microbatch_sequences);
  json.add("sequence_tokens", t.sequence_tokens).add("training_tokens", f.training_tokens);
  json.add("training_samples", f.training_samples);
}

}  // namespace

std::string job_json(const RunSetup& setup, const JobFacts& facts) {
  JsonLine json, memory, libraries;
  json.add("build", build_description()).add("revision", program_revision());
  for (const auto& [name, version] : facts.libraries) libraries.add(name, version);
  json.add("libraries", libraries);
  add_start(json, facts.record);
  add_machine(json, facts);
  add_layout(json, setup);
  add_model(json, setup);
  add_training(json, setup, facts);
  std::int64_t all = 0;
  for (int c = 0; c < category_count; ++c) {
    const auto bytes = static_cast<std::int64_t>(facts.memory[to_size(c)]);
    memory.add(name_of(static_cast<Category>(c)), bytes);
    all += bytes;
  }
  json.add("planned_memory_bytes", memory.add("total", all));
  return json.add_raw("start_seconds", to_json(facts.start)).lines();
}

}  // namespace forge
