#include "app/trained_model.hpp"

#include <algorithm>
#include <cmath>

#include "app/directory_deck.hpp"
#include "app/verb_help.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/hf_source.hpp"
#include "config/rounding_options.hpp"
#include "config/text.hpp"
#include "parallel/not_finite.hpp"
#include "train/restart.hpp"

namespace forge {

namespace {

void take_checkpoint(const std::string& from, Deck& deck) {
  deck.checkpoint.model_from = from;
  deck.model.load_weights = false;
}

// --checkpoint: from the newest of checkpoint.directory, or from DIR.
void choose_checkpoint(const std::string& asked, Deck& deck, bool looks) {
  const bool latest = asked == "latest";
  if (latest && deck.checkpoint.directory.empty())
    throw BadInput("--checkpoint latest: the deck has no checkpoint.directory; legal: give one, or --checkpoint DIR");
  const std::string from = latest ? deck.checkpoint.directory : asked;
  const std::string asks = "--checkpoint " + std::string(latest ? "latest: checkpoint.directory " : "");
  if (looks) checkpoints_at(from, asks, deck.checkpoint.directory);
  take_checkpoint(from, deck);
}

// Without an option.
bool has_newest(const CommandLine& line, const Deck& deck) {
  const std::string& directory = deck.checkpoint.directory;
  if (!directory.empty() && !committed_steps(directory).empty()) return true;
  if (deck.checkpoint.model_from.empty() && deck.model.hf.empty())
    throw BadInput(verb_of(line) + ": the deck names no trained parameters" +
                   (directory.empty() ? "" : ", and checkpoint.directory " + directory + " holds no checkpoint") +
                   "; legal: --checkpoint DIR, model.hf, checkpoint.model_from, or --initial for initial values");
  return false;
}

}  // namespace

std::vector<std::string> settings_of(const CommandLine& line) {
  if (line.precision.empty()) return line.set;
  // What training keeps, which isn't legal with every precision, isn't read.
  std::vector<std::string> settings{"train.precision=" + line.precision, "optimizer.moments=default",
                                    "optimizer.master_weights=default", "optimizer.gradients=default"};
  for (const std::string& setting : settings_without_rounding(line.precision)) settings.push_back(setting);
  settings.insert(settings.end(), line.set.begin(), line.set.end());
  return settings;
}

std::string choose_parameters(const CommandLine& line, Deck& deck, Communicator& ranks) {
  const bool looks = ranks.rank() == 0;
  if (!line.checkpoint.empty()) {
    choose_checkpoint(line.checkpoint, deck, looks);
    return "";
  }
  if (line.initial) return "";
  if (const std::string named = checkpoint_of_input(line); !named.empty()) {
    take_checkpoint(named, deck);
    return "";
  }
  std::int64_t newest = looks && has_newest(line, deck);
  ranks.max_host({&newest, 1});
  if (newest != 0) {
    take_checkpoint(deck.checkpoint.directory, deck);
    return "; the newest checkpoint, of which --checkpoint DIR and --initial are the alternatives";
  }
  if (deck.checkpoint.model_from.empty()) deck.model.load_weights = true;
  return "";
}

std::string initial_values_text(const Deck& deck) {
  return "initial values, seed " + std::to_string(deck.train.seed);
}

template <class T>
void start_adapters(const Deck& deck, const ModelSpec& spec, ParameterStorage<T>& storage, Stream& stream,
                    const Replicas& replicas, Heartbeat* heartbeat) {
  const AdapterDeck& adapter = deck.model.adapter;
  if (!adapter.on()) return;
  if (adapter.load.empty())
    storage.initialise(stream, deck.train.seed, true);
  else
    load_hf_adapter(adapter.load, spec, storage, stream, replicas, heartbeat);
}

std::string adapter_text(const Deck& deck) {
  const AdapterDeck& adapter = deck.model.adapter;
  if (!adapter.on()) return "";
  return adapter.load.empty() ? ", adapters drawn, seed " + std::to_string(deck.train.seed)
                              : ", adapters of " + adapter.load;
}

std::string model_hf_text(const Deck& deck, const ModelSpec& spec, std::vector<std::string>& notes) {
  const HfSummary summary = summary_of(deck.model.hf, spec);
  if (!summary.unread.empty()) notes.push_back("model.hf " + deck.model.hf + ": " + summary.unread);
  const std::int64_t base = deck.model.base_vocabulary;
  return "model.hf " + deck.model.hf + ", " + std::to_string(summary.tensors) + " tensors" +
         (base > 0 ? ", " + counted(deck.model.vocabulary - base, "new row") + " behind " + std::to_string(base) : "");
}

std::string parameters_line(const std::string& parameters) {
  return "parameters  " + parameters;
}

namespace {

// "a, b and 3 more, of DIR".
std::string some_of(std::vector<std::string> names, const std::string& source) {
  constexpr std::size_t most = 5;
  const std::size_t all = names.size();
  if (all > most) names.resize(most);
  return joined(names) + (all > most ? " and " + std::to_string(all - most) + " more" : "") + ", of " + source;
}

}  // namespace

template <class T>
void refuse_not_finite(const ParameterStorage<T>& storage, const std::vector<double>& biases, Stream& stream,
                       Arena& arena, const Deck& deck) {
  const bool checkpoint = !deck.checkpoint.model_from.empty();
  std::vector<std::string> model, adapters;
  for (const NotFinite& tensor : tensors_not_finite(storage, stream, arena, checkpoint))
    (tensor.adapter && !checkpoint ? adapters : model).push_back(tensor.name);
  if (!std::all_of(biases.begin(), biases.end(), [](double bias) { return std::isfinite(bias); }))
    model.push_back("a router's bias");
  if (model.empty() && adapters.empty()) return;
  std::string text;
  if (!model.empty()) text = some_of(model, checkpoint ? deck.checkpoint.model_from : "model.hf " + deck.model.hf);
  if (!adapters.empty())
    text += (text.empty() ? "" : "; ") + some_of(adapters, "adapter.load " + deck.model.adapter.load);
  throw Error("the parameters have NaN or Inf: " + text + "; legal: finite numbers", ExitCode::not_finite);
}

FORGE_INSTANTIATE_FUNCTION(start_adapters);
FORGE_INSTANTIATE_FUNCTION(refuse_not_finite);

}  // namespace forge
