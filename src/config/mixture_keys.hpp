#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/yaml.hpp"

namespace forge {

// The values of data.sources, data.phases, data.validation and optimizer.groups: lists of maps. For keys.cpp and
// values.cpp.

// read_list: "" or the error: a member that is unknown, missing, given twice or of another kind. list_text: YAML that
// reads back; `paths`: with files and mask_files. list_problem: the rule that the list breaks by itself, "" when
// none.
std::string legal_list(const std::vector<SourceDeck>& sources);
std::string legal_list(const std::vector<PhaseDeck>& phases);
std::string legal_list(const std::vector<ValidationDeck>& sets);
std::string legal_list(const std::vector<OptimizerGroup>& groups);
std::string read_list(const YamlNode& node, std::vector<SourceDeck>& sources);
std::string read_list(const YamlNode& node, std::vector<PhaseDeck>& phases);
std::string read_list(const YamlNode& node, std::vector<ValidationDeck>& sets);
std::string read_list(const YamlNode& node, std::vector<OptimizerGroup>& groups);
std::string list_text(const std::vector<SourceDeck>& sources, bool paths = true);
std::string list_text(const std::vector<PhaseDeck>& phases);
std::string list_text(const std::vector<ValidationDeck>& sets);
std::string list_text(const std::vector<OptimizerGroup>& groups);
std::string list_problem(const std::vector<SourceDeck>& sources);
std::string list_problem(const std::vector<PhaseDeck>& phases);
std::string list_problem(const std::vector<ValidationDeck>& sets);
std::string list_problem(const std::vector<OptimizerGroup>& groups);

// The first step of a phase, from 1.
std::int64_t first_step_of(const PhaseDeck& phase, const TrainDeck& train);

// The factor of learning rates in the phase of a step.
double rate_factor(const Deck& deck, std::int64_t step);

// A list of texts as YAML.
std::string paths_text(const std::vector<std::string>& items);
// The rule that one of a list of paths or texts breaks, "" when none. `noun`: of one of them.
std::string items_problem(const std::vector<std::string>& items, const char* noun);
std::string text_problem(const std::string& text, bool path);

}  // namespace forge
