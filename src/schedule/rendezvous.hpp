#pragma once

#include <string>

#include "schedule/schedule.hpp"

namespace forge {

// Check 5 of validate.hpp alone: runs all launches of a lowered schedule with blocking rendezvous semantics. "" when
// every rank reaches its end, else the ranks' waits, or a send with the wrong receive. Groups must be well formed.
std::string find_rendezvous_violation(const Schedule& schedule);

}  // namespace forge
