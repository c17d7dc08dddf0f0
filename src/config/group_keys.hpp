#pragma once

#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/yaml.hpp"

namespace forge {

// The value of optimizer.groups, a list of maps. For keys.cpp and values.cpp.

// "" or what is wrong: a member that is unknown, missing, given twice or of another kind.
std::string read_groups(const YamlNode& node, std::vector<OptimizerGroup>& groups);
std::string groups_text(const std::vector<OptimizerGroup>& groups);  // YAML that reads back
std::string legal_groups();
// The rule that the list breaks by itself, "" when none.
std::string groups_problem(const std::vector<OptimizerGroup>& groups);

}  // namespace forge
