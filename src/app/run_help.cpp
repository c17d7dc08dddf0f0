#include <cstdio>
#include <string>

#include "app/libraries.hpp"
#include "app/verb_help.hpp"
#include "app/verbs.hpp"
#include "config/write_deck.hpp"
#include "core/build_info.hpp"
#include "train/job_report.hpp"

namespace forge {

void run_help(const CommandLine& line) {
  std::string text;
  if (line.markdown)
    text = inputs_markdown();
  else if (line.inputs.empty())
    text = usage();
  else
    text = help_of_name(line.inputs.front());
  std::fputs(text.c_str(), stdout);
}

void run_version(const CommandLine&) {
  std::string text;
  for (const auto& [name, version] : libraries())
    text += (text.empty() ? "" : ", ") + (name == "MPI" ? version : version.empty() ? name : name + " " + version);
  std::printf("%s\nrevision   %s\nlibraries  %s\n", build_description().c_str(), program_revision().c_str(),
              text.c_str());
}

}  // namespace forge
