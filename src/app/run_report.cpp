#include <cstdio>
#include <filesystem>
#include <list>
#include <set>

#include "app/outputs.hpp"
#include "app/verbs.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "report/report_page.hpp"

namespace forge {

namespace {

namespace fs = std::filesystem;

// The last part of the run's path: of a metrics.jsonl that of its directory.
std::string short_name(const std::string& path) {
  fs::path run = fs::absolute(path + "/.").lexically_normal().parent_path();
  if (run.extension() == ".jsonl") run = run.filename() == "metrics.jsonl" ? run.parent_path() : run;
  return run.filename().string();
}

// A name for each run: short ones, or all as they were given where two of those are alike. Throws BadInput where a run
// was given twice.
void name_runs(std::vector<ReportedRun>& runs) {
  std::set<std::string> names, paths;
  for (ReportedRun& run : runs) {
    run.name = short_name(run.path);
    names.insert(run.name);
    if (!paths.insert(fs::absolute(run.path + "/.").lexically_normal().string()).second)
      throw BadInput("the run " + run.path + " was given twice; legal: each run once");
  }
  if (names.size() < runs.size())
    for (ReportedRun& run : runs) run.name = run.path;
}

}  // namespace

void run_report(const CommandLine& line) {
  const std::list<OutputLock> locks = lock_outputs(line);
  std::vector<ReportedRun> runs;
  for (const std::string& path : line.inputs) runs.push_back(read_reported_run(path));
  name_runs(runs);
  const std::string page = report_page(runs);
  write_text_file(line.output, page);
  for (const ReportedRun& run : runs) {
    std::printf("%s: %s up to step %lld\n", run.name.c_str(), counted(run.steps, "step").c_str(),
                static_cast<long long>(run.last_step));
    for (const std::string& note : run.notes) std::printf("  %s\n", note.c_str());
  }
  std::printf("%s, %s: open it in a browser\n", line.output.c_str(), format_bytes(page.size()).c_str());
}

}  // namespace forge
