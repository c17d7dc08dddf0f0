#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/yaml.hpp"

namespace forge {

// The value of optimizer.groups, a list of maps. For keys.cpp and values.cpp.

// As config/mixture_keys.hpp has them of other lists.
std::string legal_list(const std::vector<OptimizerGroup>& groups);
std::string read_list(const YamlNode& node, std::vector<OptimizerGroup>& groups);
std::string list_text(const std::vector<OptimizerGroup>& groups);
std::string list_problem(const std::vector<OptimizerGroup>& groups);

}  // namespace forge
