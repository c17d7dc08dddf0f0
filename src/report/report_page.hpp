#pragma once

#include <string>
#include <vector>

#include "report/reported_run.hpp"

namespace forge {

// A page of HTML that needs nothing else, neither files nor a network: the runs' curves over each other, and the other
// facts of each. Texts of runs stand in it as data alone, which a script shows as text. Each run has another name.
std::string report_page(const std::vector<ReportedRun>& runs);

// Parts of the page: its style, its drawings, and its sections, which use them.
extern const char* const page_style;
extern const char* const page_drawings;
extern const char* const page_sections;

}  // namespace forge
