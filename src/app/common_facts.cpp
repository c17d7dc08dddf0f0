#include "app/common_facts.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "app/libraries.hpp"
#include "comm/agreement.hpp"
#include "config/kernel_choice.hpp"
#include "config/keys.hpp"
#include "config/rounding_options.hpp"
#include "config/write_deck.hpp"
#include "core/build_info.hpp"
#include "core/random.hpp"
#include "core/to_size.hpp"
#include "schedule/csv.hpp"
#include "schedule/from_deck.hpp"
#include "train/job_report.hpp"
#include "train/restart.hpp"

namespace forge {

namespace {

std::string sorted_lines(std::vector<std::string> list) {
  std::ranges::sort(list);
  std::string lines;
  for (const std::string& each : list) lines += each + "\n";
  return lines;
}

// Version, compiler, revision and libraries; not the driver, which a cluster renews node by node.
std::string build_lines() {
  std::string text = build_description() + "\nrevision " + program_revision() + "\n";
  for (const auto& [name, version] : libraries())
    text += name + " " + version.substr(0, version.find(", driver")) + "\n";
  return text;
}

// What changes kernels, collectives or results: forge's own, and NCCL's but for those of a node's own devices.
std::string environment_lines() {
  constexpr std::string_view others[] = {"CUDA_DEVICE_MAX_CONNECTIONS", "FORGE_ISA", "FORGE_SHARE_GPU"};
  constexpr std::string_view of_a_node[] = {"NCCL_HOSTID", "NCCL_DEBUG", "NCCL_SOCKET", "NCCL_IB_HCA", "NCCL_IB_GID",
                                            "NCCL_TOPO",   "NCCL_GRAPH", "NCCL_OOB",    "NCCL_RAS"};
  std::vector<std::string> list;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const auto begins = [&](std::string_view with) { return text.starts_with(with); };
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::count(kernel_variables, name) || std::ranges::count(others, name) ||
        (begins("NCCL_") && std::ranges::none_of(of_a_node, begins)))
      list.emplace_back(text);
  }
  return sorted_lines(std::move(list));
}

// "train.steps: 20" for each key.
std::string deck_lines(const Deck& deck) {
  std::istringstream lines(write_deck(deck));
  std::string text, line, section;
  while (std::getline(lines, line))
    if (line.starts_with("  "))
      text += section + "." + line.substr(2) + "\n";
    else
      section = line.substr(0, line.find(':'));
  if (!deck.schedule.file.empty())
    text +=
        write_schedule_csv(schedule_of(deck, static_cast<int>(deck.mesh.pp), static_cast<int>(microbatches_of(deck))));
  return text;
}

// Bytes at so many places of a file, evenly from its first to its last.
std::uint64_t drawn_bytes(const std::filesystem::path& path, std::uint64_t size) {
  constexpr std::uint64_t places = 32, length = 256;
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  for (std::uint64_t i = 0; i < places; ++i) {
    char part[length];
    file.clear();
    file.seekg(static_cast<std::streamoff>(size > length ? (size - length) * i / (places - 1) : 0));
    file.read(part, length);
    bytes.append(part, to_size(file.gcount()));
  }
  return hash_of(bytes);
}

// "model-00001-of-00002.safetensors, 4988025760 bytes, contents 81…" for each file of a directory that a training
// starts from: weights, states, what describes them, and of a checkpoint the manifest, which has hashes of the shards.
// The reader of the directory reports its faults.
std::string start_lines(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::vector<std::string> list;
  const auto add = [&](const fs::path& file) {
    const std::uint64_t size = fs::file_size(file, ignored);
    list.push_back(file.filename().string() + ", " + std::to_string(size) + " bytes, contents " +
                   std::to_string(drawn_bytes(file, size)));
  };
  if (fs::is_regular_file(path, ignored)) add(path);
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".safetensors") || name == "config.json" || name == "adapter_config.json" ||
        name == "manifest.h5")
      add(entry.path());
  }
  return sorted_lines(std::move(list));
}

std::string weight_lines(const ModelDeck& model) {
  return model.load_weights ? start_lines(model.hf) : "";
}

// "step_00000008/rank_0.h5, 4096 bytes, written 17…" for each file of checkpoints, which hold hashes of themselves.
std::string checkpoint_lines(const std::string& from) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path directory = fs::is_directory(from, ignored) ? fs::path(from) : fs::path(from).parent_path();
  std::vector<std::string> list;
  for (fs::recursive_directory_iterator at(directory, ignored), end; !ignored && at != end; at.increment(ignored)) {
    if (!at->path().string().ends_with(".h5")) continue;
    const auto time = at->last_write_time(ignored).time_since_epoch().count();
    list.push_back(at->path().string() + ", " + std::to_string(at->file_size(ignored)) + " bytes, written " +
                   std::to_string(time));
  }
  return sorted_lines(std::move(list));
}

// Where documents end in some samples: with data.document_ends = index another file says it.
std::string documents_of(const TokenSet& set) {
  constexpr std::int64_t looked_at = 64;
  Sample sample(set.sequence_tokens());
  std::uint64_t sum = 0;
  const std::int64_t n = set.samples();
  for (std::int64_t i = 0; i < std::min(n, looked_at); ++i) {
    set.read(n <= looked_at ? i : i * (n - 1) / (looked_at - 1), sample);
    for (const std::int32_t document : sample.documents) sum = mix(sum, static_cast<std::uint64_t>(document));
  }
  return "ends " + std::to_string(sum);
}

}  // namespace

std::string model_fingerprint(const Deck& deck) {
  constexpr std::string_view others[] = {"train.seed", "train.sequence_tokens", "data.document_end_token"};
  std::string text;
  for (const Key& key : all_keys())
    if (key.section == "model" || key.section == "adapter" || is_of_products(key) ||
        std::ranges::count(others, key.qualified()))
      text += key.qualified() + ": " + value_text(key, deck) + "\n";
  const std::string& adapter = deck.model.adapter.load;
  return text + weight_lines(deck.model) + (adapter.empty() ? "" : start_lines(adapter)) +
         (deck.checkpoint.model_from.empty() ? "" : checkpoint_lines(deck.checkpoint.model_from));
}

void agree_on_start(const Deck& deck, const World& world) {
  if (world.size() == 1) return;
  const char* const files = "every node must see the same files";
  std::vector<CommonFact> facts{
      {"the program", build_lines(), "every node must have the same build"},
      {"the environment", environment_lines(), "every rank must be started with the same variables"},
      {"the resolved deck", deck_lines(deck), "every rank must read the same files with the same options"},
      {"model.hf = " + deck.model.hf, weight_lines(deck.model), files}};
  for (const auto& [key, path] : {std::pair{"adapter.load", deck.model.adapter.load},
                                  {"checkpoint.model_from", deck.checkpoint.model_from},
                                  {"checkpoint.optimizer_from", deck.checkpoint.optimizer_from}})
    facts.push_back({key + (" = " + path), path.empty() ? "" : start_lines(path), files});
  agree_on(facts, world);
}

void agree_on_data(const TrainingData& data, const RunSetup& setup, const World& world) {
  if (world.size() == 1) return;
  const char* const rule = "every node must see the same files";
  std::vector<CommonFact> facts;
  if (!data.training.empty()) {
    const SampleStream stream = data.stream(setup);
    facts.push_back({"the training data", data_fingerprint(stream), rule});
    std::string documents;
    for (const DataSource& source : stream.sources()) documents += documents_of(*source.set) + "; ";
    facts.push_back({"the documents of the training data", documents, rule});
  }
  for (const TrainingData::HeldOut& set : data.validation) {
    const std::string name = set.deck.name.empty() ? "" : " " + set.deck.name;
    facts.push_back({"the validation data" + name, data_fingerprint(*set.tokens), rule});
    facts.push_back({"the documents of the validation data" + name, documents_of(*set.tokens), rule});
  }
  agree_on(facts, world);
}

}  // namespace forge
