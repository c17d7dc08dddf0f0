#include "app/directory_deck.hpp"

#include <algorithm>
#include <filesystem>

#include "app/model_deck.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "config/keys.hpp"
#include "config/mixture_keys.hpp"
#include "config/text.hpp"
#include "config/yaml.hpp"
#include "core/file_errors.hpp"
#include "layout/mesh_shape.hpp"
#include "train/restart.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

bool sets(const std::vector<std::string>& options, const std::string& begin) {
  return std::any_of(options.begin(), options.end(), [&](const std::string& o) { return o.starts_with(begin); });
}

// Of the newest checkpoint whose table can be read.
std::string deck_in_checkpoints(const std::string& path) {
  std::string damage;
  for (const std::string& checkpoint : checkpoints_at(path, "")) {
    try {
      return CheckpointFiles(checkpoint, datasets_of({})).facts().deck;
    } catch (const BadCheckpoint& error) {
      damage += std::string("\n  ") + error.what();
    }
  }
  throw BadCheckpoint("no usable checkpoint:" + damage);
}

// Before other options: all keys of the layout as they are without a deck, and all ranks read different data.
std::vector<std::string> plain_layout() {
  std::vector<std::string> options;
  for (const Key& key : all_keys())
    if (key.section == "mesh" || key.section == "schedule")
      options.push_back(key.qualified() + "=" + default_text(key));
  options.push_back("mesh.dp_shard=-1");
  return options;
}

Deck deck_of_checkpoint(const CommandLine& line, const std::vector<std::string>& options, Needs needs, int world_size) {
  const std::string& path = line.inputs.front();
  const std::string text = deck_in_checkpoints(path), name = path + ": its deck";
  const Deck deck = read_deck(text, name, options, needs, DeckWriter::forge);
  std::vector<std::string> all;
  // The resolved deck has all that the directory has said.
  if (std::error_code ignored; !deck.model.hf.empty() && !fs::exists(deck.model.hf, ignored))
    all = {"model.hf=\"\"", "model.load_weights=false", "model.new_rows=none"};
  const bool any_layout = line.verb == Verb::evaluate || line.verb == Verb::score || !line.prompts.empty();
  if (any_layout && world_size > 0 && ranks_of(deck.mesh) != world_size && !sets(options, "mesh."))
    for (const std::string& option : plain_layout()) all.push_back(option);
  all.insert(all.end(), options.begin(), options.end());
  return read_deck(text, name, all, needs, DeckWriter::forge);
}

// The files of the first held-out set that the options name, as YAML.
std::string first_held_out(const std::string& text, const std::string& name, const std::vector<std::string>& options) {
  const auto sets = read_deck(text, name, options, Needs::model_only).data.held_out();
  return sets.empty() ? "[]" : paths_text(sets.front().files);
}

// What a model alone doesn't say: a step of one sequence a rank, for show and plan.
Deck deck_of_model(const CommandLine& line, std::vector<std::string> options, Needs needs, int world_size) {
  fs::path directory = line.inputs.front();
  if (!directory.has_filename()) directory = directory.parent_path();
  const std::string name = "the deck of model " + directory.string();
  std::string text = needs == Needs::training ? model_deck(directory.string(), world_size)
                                              : "model: {hf: " + yaml_text(directory.string()) + "}\n";
  if (needs == Needs::training) {
    // Data is evaluate's: what it looks at is no training set.
    const bool has_files = sets(options, "data.files=") || sets(options, "data.sources=");
    const bool held_out = sets(options, "data.validation_files=") || sets(options, "data.validation=");
    if (line.verb == Verb::evaluate && !held_out && !has_files)
      throw BadInput(
          "forge evaluate " + directory.string() +
          ": a model doesn't say which text it is evaluated on; legal: --set 'data.validation_files=[FILE]', and of "
          "raw token files --set data.dtype=uint16 | uint32, as forge tokenize prints them; or a deck with model.hf");
    if (line.verb != Verb::evaluate)
      text += "data: {files: [train.bin]}\n";
    else if (!has_files)
      options.insert(options.begin(), "data.files=" + first_held_out(text, name, options));
  }
  return read_deck(text, name, options, needs);
}

bool takes_directory(Verb verb) {
  return verb == Verb::evaluate || verb == Verb::score || verb == Verb::generate || verb == Verb::show ||
         verb == Verb::plan;
}

}  // namespace

std::string checkpoint_of_input(const CommandLine& line) {
  const std::string& path = line.inputs.front();
  std::error_code ignored;
  const bool latest = fs::path(path).filename() == "latest" && is_file(path);
  if (!takes_directory(line.verb) || (!latest && !fs::is_directory(path, ignored))) return "";
  return holds_checkpoints(path) ? path : "";
}

bool stands_for_deck(const CommandLine& line) {
  const std::string& path = line.inputs.front();
  std::error_code ignored;
  if (!checkpoint_of_input(line).empty()) return true;
  if (!fs::is_directory(path, ignored)) return false;
  if (!takes_directory(line.verb))
    throw BadInput("the deck " + path + " is a directory; give the path of a YAML file" +
                   (holds_checkpoints(path)          ? ", and this directory to --restart or checkpoint.model_from"
                    : is_file(path + "/config.json") ? ", and this directory as model.hf"
                    : is_file(path + "/deck.yaml")   ? ", as " + path + "/deck.yaml"
                                                     : ""));
  if (is_file(path + "/deck.yaml") || is_file(path + "/config.json")) return true;
  throw BadInput("the deck " + path +
                 " is a directory without config.json, deck.yaml and checkpoints; legal: a YAML file, a Hugging Face "
                 "directory, a run's, a checkpoint or checkpoint.directory");
}

Deck deck_of_directory(const CommandLine& line, std::vector<std::string> options, Needs needs, int world_size) {
  const std::string& path = line.inputs.front();
  if (!checkpoint_of_input(line).empty()) return deck_of_checkpoint(line, options, needs, world_size);
  const std::string file = path + "/deck.yaml";
  if (is_file(file))
    return read_deck(read_text_file(file, most_yaml_bytes, "the deck"), file, options, needs, DeckWriter::forge);
  return deck_of_model(line, std::move(options), needs, world_size);
}

}  // namespace forge
