#pragma once

#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "config/read.hpp"

namespace forge {

// Directories that stand for a deck on the command line of evaluate, generate, show and plan:
//   a checkpoint, or a directory of checkpoints   the deck that it was made with, and its parameters
//   a run's directory                             its deck.yaml
//   a Hugging Face directory                      a deck whose model.hf it is

// Whether the command line has a directory in the place of the deck. BadInput: one that stands for none, or of a verb
// that takes a deck only.
bool stands_for_deck(const CommandLine& line);

// The deck that it stands for, changed by `options`. A checkpoint's is for as many ranks as evaluate has now: another
// layout is dp_shard alone, unless the options have a mesh. Throws BadInput and BadCheckpoint.
Deck deck_of_directory(const CommandLine& line, std::vector<std::string> options, Needs needs, int world_size);

// The checkpoint, or the directory of checkpoints, that the command line has in the place of a deck; "": none.
std::string checkpoint_of_input(const CommandLine& line);

}  // namespace forge
