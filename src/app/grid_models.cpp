#include "app/grid_models.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "app/searched_deck.hpp"
#include "config/shared_files.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "nn/units.plan.hpp"
#include "predict/dense_deck.hpp"
#include "predict/dense_shape.hpp"

namespace forge {

namespace {

constexpr std::array sizes{1e9, 3e9, 8e9, 1.3e10, 3e10, 7e10, 1.75e11, 4.05e11, 1e12};

// Shipped mixtures: the model and the batch of a deck.
struct Mixture {
  const char* name;
  const char* deck;
};
constexpr std::array mixtures{Mixture{"olmoe", "olmoe_8gpu"},
                              Mixture{"deepseek_v2_lite", "deepseek_v2_lite_8gpu"},
                              Mixture{"moonlight", "moonlight_16gpu"},
                              Mixture{"gpt_oss_20b", "gpt_oss_20b_8gpu"},
                              Mixture{"qwen3_30b", "qwen3_30b_16gpu"},
                              Mixture{"mixtral_8x7b", "mixtral_8x7b_32gpu"},
                              Mixture{"glm45_air", "glm45_air_32gpu"},
                              Mixture{"qwen3_next_80b", "qwen3_next_80b_64gpu"},
                              Mixture{"mixtral_8x22b", "mixtral_8x22b_128gpu"},
                              Mixture{"minimax_m2", "minimax_m2_256gpu"},
                              Mixture{"qwen3_235b", "qwen3_235b_256gpu"},
                              Mixture{"deepseek_v2", "deepseek_v2_128gpu"},
                              Mixture{"glm45", "glm45_128gpu"},
                              Mixture{"deepseek_v3", "deepseek_v3_256gpu"},
                              Mixture{"kimi_k2", "kimi_k2_512gpu"}};

std::string mixture_names() {
  std::vector<std::string> names;
  for (const Mixture& mixture : mixtures) names.emplace_back(mixture.name);
  return joined(names);
}

std::int64_t parameters_of(const Deck& deck) {
  return parameter_count(parameter_units(resolve_model(deck.model)));
}

GridModel model_of_file(const CommandLine& line, const std::string& name, const std::string& source,
                        const std::string& file) {
  CommandLine one = line;
  one.inputs = {file};
  try {
    GridModel model{name, source, searched_deck(one)};
    model.parameters = parameters_of(model.deck);
    return model;
  } catch (const BadInput& wrong) {
    const std::string text = wrong.what();
    if (text.find(file) != std::string::npos) throw;
    throw BadInput("--models " + source + ": " + text);
  }
}

bool is_path(const std::string& word) {
  std::error_code ignored;
  return word.find('/') != std::string::npos || word.ends_with(".yaml") || word.ends_with(".yml") ||
         std::filesystem::exists(word, ignored);
}

GridModel model_of(const CommandLine& line, const std::string& word) {
  for (const Mixture& mixture : mixtures)
    if (word == mixture.name) return model_of_file(line, word, word, shared_file(mixture.deck, "deck", "inputs"));
  if (const auto size = size_of_word(word)) {
    if (*size >= least_dense_parameters && *size <= most_dense_parameters) return dense_model(line, *size);
    throw BadInput("--models " + word + ": sizes are from 1B to 1T");
  }
  if (!is_path(word))
    throw BadInput("--models: no model " + shown(word) + "; legal: a deck's path, a size from 1B to 1T, or " +
                   mixture_names());
  std::filesystem::path path(word);
  if (!path.has_filename()) path = path.parent_path();
  const bool yaml = path.extension() == ".yaml" || path.extension() == ".yml";
  return model_of_file(line, (yaml ? path.stem() : path.filename()).string(), word, word);
}

}  // namespace

std::vector<GridModel> grid_models(const CommandLine& line) {
  std::vector<GridModel> models;
  for (const std::string& word : line.models) models.push_back(model_of(line, word));
  if (models.empty()) {
    for (const double size : sizes) models.push_back(dense_model(line, size));
    for (const Mixture& mixture : mixtures) models.push_back(model_of(line, mixture.name));
  }
  for (std::size_t i = 0; i < models.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (models[i].name == models[j].name)
        throw BadInput("--models: two are called " + models[i].name + "; legal: each once");
  const bool experts =
      std::any_of(models.begin(), models.end(), [](const auto& m) { return m.deck.model.experts > 0; });
  if (line.imbalance > 1 && !experts)
    throw BadInput(
        "--imbalance is of experts, and no model of the grid has any; legal: a model with model.experts > 0");
  return models;
}

GridModel dense_model(const CommandLine& line, double parameters) {
  const std::string name = size_text(parameters);
  GridModel model{name, name, dense_deck(name, parameters, line.set)};
  model.parameters = parameters_of(model.deck);
  return model;
}

Deck cell_deck(const GridModel& model, int ranks) {
  Deck deck = model.deck;
  std::int64_t& batch = deck.train.global_batch_sequences;
  if (batch % ranks == 0 || ranks % batch == 0) return deck;
  batch = (batch + ranks - 1) / ranks * ranks;
  deck.train.batch_ramp.clear();
  return deck;
}

}  // namespace forge
