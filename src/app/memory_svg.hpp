#pragma once

#include <string>

#include "plan/memory_course.hpp"

namespace forge {

// A rank's arena over the tasks of a step as an SVG document: by category from below, slots without contents apart,
// with the task in which it is fullest. `usable`: of the device, 0: not known.
std::string memory_svg(const RunSetup& setup, const MemoryCourse& course, const std::string& title,
                       std::size_t usable = 0);

}  // namespace forge
