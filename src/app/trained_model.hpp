#pragma once

#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "config/deck.hpp"

namespace forge {

// The settings of the deck that a command line stands for: --precision, then --set. Another precision than fp8 takes
// the deck's keys of fp8 back to their defaults, which alone are legal there.
std::vector<std::string> settings_of(const CommandLine& line);

// Where evaluate and generate take the parameters from, said by the deck as Job and load_model read it: --checkpoint
// becomes checkpoint.model_from; without an option model.hf implies model.load_weights; --initial leaves the deck as it
// is: what training starts with. `looks`: of all ranks, the one that looks at directories and throws: BadInput where
// the command line must choose, BadCheckpoint where what it asks for isn't there.
void choose_parameters(const CommandLine& line, Deck& deck, bool looks);

// "parameters of model.hf DIR", "initial parameters (train.seed 5)"; of a checkpoint load_model says it: "".
std::string parameters_text(const Deck& deck);

}  // namespace forge
