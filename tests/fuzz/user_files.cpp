// libFuzzer's input is a file that a user brings: a byte for its kind, and the file; behind a deck's last zero byte
// stand options, one a line. It is refused with BadInput, or what it says holds together: a deck or a model that is
// written down is read again as it was, a tensor's bytes lie in its file.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "config/read.hpp"
#include "config/write_deck.hpp"
#include "core/error.hpp"
#include "hf/adapter_config.hpp"
#include "hf/config.hpp"
#include "hf/safetensors.hpp"
#include "hf/special_ids.hpp"
#include "predict/machine.hpp"
#include "report/reported_run.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/csv.hpp"
#include "schedule/generate.hpp"
#include "scratch.hpp"

namespace forge {
namespace {

namespace fs = std::filesystem;
using test::get;
using test::put;

enum Kind : std::uint8_t { deck, machine, schedule, config, ids, adapter, tensors, parts, metrics, kinds };
constexpr const char* names[] = {"deck.yaml",
                                 "machine.yaml",
                                 "schedule.csv",
                                 "config.json",
                                 "generation_config.json",
                                 "adapter_config.json",
                                 "model.safetensors",
                                 "model.safetensors.index.json",
                                 "metrics.jsonl"};

// With a directory for each kind.
class Scratch : public test::FuzzScratch {
 public:
  Scratch() : FuzzScratch("user_fuzz") {
    for (int kind = 0; kind < kinds; ++kind) fs::create_directories(directory(kind));
  }
  std::string directory(int kind) const { return *this / std::to_string(kind); }
  std::string file(int kind) const { return directory(kind) + "/" + names[kind]; }
};

Scratch& scratch() {
  static Scratch instance;
  return instance;
}

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "an accepted file is wrong: %s\n", what);
  std::abort();
}

void read_as_deck(const std::string& input) {
  const std::size_t zero = input.rfind('\0');
  std::vector<std::string> options;
  if (zero != std::string::npos) {
    std::istringstream lines(input.substr(zero + 1));
    for (std::string line; std::getline(lines, line);) options.push_back(line);
  }
  Deck first = read_deck(input.substr(0, zero), "deck.yaml", options);
  const std::string written = write_deck(first);
  expect(write_deck(read_deck(written, "written", {})) == written, "a deck that is written is another one when read");
  if (!first.model.hf.empty()) return;
  check_deck(first, 8);
  const std::string resolved = write_deck(first);
  Deck again = read_deck(resolved, "resolved", {});
  check_deck(again, 8);
  expect(write_deck(again) == resolved, "a deck that has been checked changes when it is checked again");
}

// The same model again where its family can say it.
void read_as_config() {
  const ModelDeck model = read_hf_config(scratch().directory(config), {});
  if (!hf_obstacle(model).empty()) return;
  const std::string written = write_hf_config(model);
  put(scratch().file(config), written);
  expect(write_hf_config(read_hf_config(scratch().directory(config), {})) == written,
         "a config.json that is written says another model");
}

void read_tensors(const TensorFiles& files) {
  for (const std::string& name : files.names()) {
    const TensorInfo* tensor = files.find(name);
    expect(tensor && tensor->offset + tensor->bytes <= fs::file_size(files.file_of(*tensor)), "a tensor's place");
    std::vector<std::byte> bytes(tensor->bytes);
    files.read_bytes(*tensor, bytes, 0);
    if (tensor->type != "F64" && tensor->type != "F32" && tensor->type != "BF16" && tensor->type != "F16") continue;
    std::vector<double> values(to_size(tensor->elements()));
    files.read(*tensor, values);
  }
}

ModelDeck adapted_model() {
  ModelDeck model;
  model.layers = 2, model.width = 32, model.heads = 4, model.kv_heads = 2, model.head_dim = 8, model.ffn = 56;
  model.adapter.name = AdapterName::lora;
  return model;
}

bool accepts(int kind, const std::string& text) {
  try {
    put(scratch().file(kind), text);
    switch (kind) {
      case deck:
        read_as_deck(text);
        break;
      case machine:
        read_machine(scratch().file(machine));
        break;
      case schedule: {
        const std::string written = write_schedule_csv(read_schedule_csv(text, "schedule.csv"));
        expect(write_schedule_csv(read_schedule_csv(written, "written")) == written, "a schedule");
        break;
      }
      case config:
        read_as_config();
        break;
      case ids:
        for (const std::int32_t end : read_special_ids(scratch().directory(ids)).ends) expect(end >= 0, "an end");
        break;
      case adapter:
        check_adapter_config(scratch().directory(adapter), adapted_model());
        break;
      case tensors:
      case parts:
        read_tensors(TensorFiles::open(scratch().directory(kind)));
        break;
      default: {
        const ReportedRun run = read_reported_run(scratch().file(metrics));
        expect(!json_of_run(run).empty(), "a report");
      }
    }
    return true;
  } catch (const BadInput&) {
    return false;
  }
}

std::string tensor_file() {
  const std::string path = scratch().file(parts) + ".seed";
  SafetensorsWriter writer(path, {{"a", "F32", {2, 3}}, {"b", "BF16", {5}}, {"c", "F8_E4M3", {4}}}, {{"format", "pt"}});
  for (const auto& [name, bytes] : {std::pair{"a", 24}, {"b", 10}, {"c", 4}})
    writer.write(name, std::vector<std::byte>(to_size(bytes), std::byte{1}));
  writer.finish();
  const std::string text = get(path);
  fs::remove(path);
  return text;
}

// The shipped decks and machines, the config.json of the decks' models, and one file of each other kind.
class Seeds {
 public:
  explicit Seeds(std::string directory) : directory_(std::move(directory)) {
    for (const auto& entry : fs::directory_iterator(FORGE_INPUTS)) add_deck(entry.path());
    for (const auto& entry : fs::directory_iterator(FORGE_INPUTS "/machines"))
      if (get(entry.path()).find("like:") == std::string::npos) add(machine, get(entry.path()));
    ScheduleRequest request;
    request.ranks = 2;
    request.microbatches = 3;
    add(schedule, write_schedule_csv(generate(request)));
    add(ids, R"({"eos_token_id": [1, 2], "bos_token_id": 0, "pad_token_id": null})");
    add(adapter, write_adapter_config(adapted_model()));
    add(tensors, tensor_file());
    put(scratch().directory(parts) + "/model-00001-of-00001.safetensors", tensor_file());
    add(parts, R"({"metadata": {}, "weight_map": {"a": "model-00001-of-00001.safetensors",
        "b": "model-00001-of-00001.safetensors", "c": "model-00001-of-00001.safetensors"}})");
    add(metrics,
        "{\"step\": 1, \"loss\": 5.5, \"tokens\": 64, \"seconds\": 0.5}\n{\"step\": 2, \"loss\": 5.25, \"tokens\": "
        "128, "
        "\"seconds\": 1}\n{\"step\": 2, \"validation_loss\": 5.0, \"set\": \"x\"}\n");
  }

 private:
  void add_deck(const fs::path& path) {
    if (path.extension() != ".yaml") return;
    const std::string text = get(path);
    add(deck, text + '\0' + "mesh.tp=2\nmodel.layers=4\ntrain.microbatch_sequences=1", false);  // not legal for each
    Deck read = read_deck(text, path, {});
    try {
      check_deck(read, 1, Needs::model_only);
      if (read.model.hf.empty() && hf_obstacle(read.model).empty()) add(config, write_hf_config(read.model));
    } catch (const BadInput&) {  // a layout of several ranks
    }
  }
  void add(int kind, const std::string& text, bool must_read = true) {
    if (must_read && !accepts(kind, text)) {
      std::fprintf(stderr, "a seed is refused: %s\n", names[kind]);
      std::abort();
    }
    put(directory_ + "/" + std::to_string(number_++), std::string(1, static_cast<char>(kind)) + text);
  }

  std::string directory_;
  int number_ = 0;
};

// How many inputs of each kind ended how: fuzzing that only ever refuses would show nothing.
struct Counts {
  std::uint64_t all[kinds] = {}, read[kinds] = {};
  ~Counts() {
    std::fprintf(stderr, "accepted:");
    for (int kind = 0; kind < kinds; ++kind)
      std::fprintf(stderr, "%s %llu of %llu %s", kind ? "," : "", static_cast<unsigned long long>(read[kind]),
                   static_cast<unsigned long long>(all[kind]), names[kind]);
    std::fprintf(stderr, "\n");
  }
};

}  // namespace
}  // namespace forge

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using namespace forge;
  scratch();
  if (*argc == 3 && std::string((*argv)[1]) == "--seeds") {
    const Seeds seeds((*argv)[2]);
    std::exit(0);
  }
  put(scratch().directory(parts) + "/model-00001-of-00001.safetensors", tensor_file());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forge;
  static Counts counts;
  if (size == 0) return 0;
  const int kind = data[0] % kinds;
  ++counts.all[kind];
  counts.read[kind] += accepts(kind, std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
