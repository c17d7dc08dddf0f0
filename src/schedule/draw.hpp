#pragma once

#include <string>

#include "schedule/schedule.hpp"
#include "schedule/schedule_times.hpp"

namespace forge {

// The schedule as people see it: a row per rank, time to the right, F3 / B3 / W3 for microbatch 3 (with a letter for
// the chunk where there are several: F3a), then the bubble's share. One column per shortest duration.
std::string draw_text(const Schedule& schedule, const DurationOf& duration);

// The schedule as an SVG document, 24 units per row; colours by F, B and W, darker for later chunks.
std::string draw_svg(const Schedule& schedule, const DurationOf& duration);

// A text inside an SVG document's element or attribute.
std::string xml_escaped(const std::string& text);

}  // namespace forge
