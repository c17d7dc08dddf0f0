#include "app/trained_model.hpp"

#include <filesystem>
#include <string_view>

#include "checkpoint/directory.hpp"
#include "config/keys.hpp"
#include "train/restart.hpp"

namespace forge {

namespace {

const char* verb_of(const CommandLine& line) {
  return line.verb == Verb::generate ? "forge generate" : "forge evaluate";
}

// What --initial stands for, and what it doesn't reach.
std::string initial_text(const Deck& deck) {
  if (!deck.checkpoint.model_from.empty()) return "those of checkpoint.model_from = " + deck.checkpoint.model_from;
  if (deck.model.hf.empty()) return "initial values";
  if (deck.model.load_weights) return "those of model.hf = " + deck.model.hf;
  return "initial values; with --set model.load_weights=true those of model.hf = " + deck.model.hf;
}

// --checkpoint: from the newest of checkpoint.directory, or from DIR.
void choose_checkpoint(const CommandLine& line, Deck& deck, bool looks) {
  const bool latest = line.checkpoint == "latest";
  if (latest && deck.checkpoint.directory.empty())
    throw BadInput("--checkpoint latest: the deck has no checkpoint.directory; legal: give one, or --checkpoint DIR");
  const std::string from = latest ? deck.checkpoint.directory : line.checkpoint;
  if (looks) checkpoints_at(from, "--checkpoint " + std::string(latest ? "latest: checkpoint.directory " : ""));
  deck.checkpoint.model_from = from;
  deck.model.load_weights = false;
}

// Checkpoints that stand may be what is meant: only the command line can say.
void refuse_doubt(const CommandLine& line, const Deck& deck) {
  const std::string& directory = deck.checkpoint.directory;
  const auto steps = directory.empty() ? std::vector<StepDirectory>() : committed_steps(directory);
  if (!steps.empty())
    throw BadInput("checkpoint.directory " + directory + " holds checkpoints (" +
                   std::filesystem::path(steps.front().path).filename().string() +
                   "); say --checkpoint latest for the model of the newest, --checkpoint DIR for another one, or "
                   "--initial for the parameters that training starts with (" +
                   initial_text(deck) + ")");
  if (deck.checkpoint.model_from.empty() && deck.model.hf.empty())
    throw BadInput(std::string(verb_of(line)) + ": the deck names no trained parameters" +
                   (directory.empty() ? "" : ", and checkpoint.directory " + directory + " holds no checkpoint") +
                   "; legal: --checkpoint DIR, model.hf, checkpoint.model_from, or --initial for initial values");
}

}  // namespace

std::vector<std::string> settings_of(const CommandLine& line) {
  if (line.precision.empty()) return line.set;
  // What training keeps, which isn't legal with every precision, isn't read.
  std::vector<std::string> settings{"train.precision=" + line.precision, "optimizer.moments=default",
                                    "optimizer.master_weights=default", "optimizer.gradients=default"};
  for (const Key& key : all_keys())
    if (line.precision != "fp8" && key.section == "train" && std::string_view(key.name).starts_with("fp8_"))
      settings.push_back(key.qualified() + "=" + default_text(key));
  if (line.precision != "fp8") settings.push_back("machine.fp8_products=bf16");
  if (line.precision != "fp8" && line.precision != "bf16")
    settings.insert(settings.end(),
                    {"machine.grouped=library", "machine.dispatch_counts=host", "machine.attention=cuda_cores"});
  settings.insert(settings.end(), line.set.begin(), line.set.end());
  return settings;
}

void choose_parameters(const CommandLine& line, Deck& deck, bool looks) {
  if (!line.checkpoint.empty()) return choose_checkpoint(line, deck, looks);
  if (line.initial) return;
  if (looks) refuse_doubt(line, deck);
  if (deck.checkpoint.model_from.empty()) deck.model.load_weights = true;
}

std::string parameters_text(const Deck& deck) {
  if (!deck.checkpoint.model_from.empty()) return "";
  if (deck.model.load_weights) return "parameters of model.hf " + deck.model.hf;
  return "initial parameters (train.seed " + std::to_string(deck.train.seed) + ")";
}

}  // namespace forge
