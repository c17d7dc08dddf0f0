#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "config/deck.hpp"

namespace forge {

// A model of forge plan --grid.
struct GridModel {
  std::string name;    // the deck's file without its ending, a mixture's name, or a size, "8B"
  std::string source;  // as --models has it
  Deck deck;           // resolved on one rank, with a plain layout
  std::int64_t parameters = 0;
};

// The models that --models names, in its order; without it all sizes and all mixtures. Throws BadInput.
std::vector<GridModel> grid_models(const CommandLine& line);
// A dense model of so many parameters as --models 8B has it (predict/dense_shape.hpp), changed by --set.
GridModel dense_model(const CommandLine& line, double parameters);

// The model's deck on so many ranks: with its own batch where batch and ranks divide one another, else with the next
// multiple of the ranks.
Deck cell_deck(const GridModel& model, int ranks);

}  // namespace forge
