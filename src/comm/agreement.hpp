#pragma once

#include <string>
#include <vector>

#include "comm/world.hpp"

namespace forge {

// A fact that must be the same on all ranks of a job.
struct CommonFact {
  std::string name;   // "the build"
  std::string value;  // lines of text; a message quotes the first line that differs
  std::string rule;   // "start the same program on every node"
};

// All ranks, with as many facts each. Throws BadInput on every rank where a value differs: with the odd ranks, which
// don't have the value of most, their nodes, and the line that differs on both sides. Where all agree, a rank sends two
// numbers for each fact.
void agree_on(const std::vector<CommonFact>& facts, const World& world);

// "rank 3 on node07", "ranks 3, 4 and 12 more, the first on node07"; `world`: null: without the node.
std::string ranks_text(const std::vector<int>& ranks, const World* world);

}  // namespace forge
