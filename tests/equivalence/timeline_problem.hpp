#pragma once

#include <string>
#include <vector>

#include "device/timeline.hpp"
#include "plan/setup.hpp"

namespace forge::test {

// "" where a rank's gradients ran as the planner simulates them: on each stream the same tasks in the same order, and
// none begun before the end of the tasks that it waits for in the simulation.
std::string timeline_problem(const RunSetup& setup, const std::vector<Timeline::Span>& spans);

}  // namespace forge::test
