#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"
#include "hf/special_ids.hpp"

namespace forge {

// The model of a Hugging Face directory: <directory>/config.json, of a model_type of hf/families.cpp, with the meaning
// that the transformers library (version 5) gives its keys and their absence; null means absent. A text model beside an
// image model is one of its family. Rotary parameters may stand in rope_theta and rope_scaling or in rope_parameters.
// Keys that change the arithmetic in a way forge doesn't have are refused by name; dropout, jitter and keys without
// effect on the arithmetic are ignored.
//   from_deck  gives the deck's own keys (hf, load_weights, dropout, residual_scaling, the training of experts,
//              multi-token prediction), and initial_std and auxiliary_loss_coefficient where the deck has them; any
//              other key that the deck has (ModelDeck::given) must agree with config.json
// Throws one BadInput for everything that is wrong.
ModelDeck read_hf_config(const std::string& directory, const ModelDeck& from_deck);

// The part of a config.json about coded weights: the modules without codes.
struct CodedWeights {
  std::vector<std::string> plain_modules;
};
// The part of a config.json beside a model's arithmetic.
struct HfFacts {
  const CodedWeights* coded = nullptr;  // of files whose weights are codes with block scales
  std::string dtype;                    // of the weights, in PyTorch's word; "": not said
  SpecialIds ids;
  std::int64_t positions = 0;  // of a model without model.max_positions: those it was trained on; 0: not said
};
// A config.json for a resolved model, in the older key style, which transformers 4 and 5 both load. Throws BadInput
// when the model's family has no words for the model.
std::string write_hf_config(const ModelDeck& model, const HfFacts& facts = {});

// "" when write_hf_config can express the model, else why not.
std::string hf_obstacle(const ModelDeck& model);

}  // namespace forge
