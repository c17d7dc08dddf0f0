#include "report/reported_run.hpp"

#include <filesystem>
#include <fstream>

#include "config/directory_lock.hpp"
#include "config/text.hpp"
#include "config/yaml.hpp"
#include "core/error.hpp"
#include "core/file_errors.hpp"
#include "hf/json_input.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_job_bytes = std::size_t{1} << 20;

std::string text_of(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::scalar:
      return node.text;
    case YamlNode::Kind::list: {
      std::vector<std::string> items;
      for (const YamlNode& item : node.items) items.push_back(text_of(item));
      return "[" + joined(items) + "]";
    }
    case YamlNode::Kind::map: {
      std::vector<std::string> items;
      for (const YamlNode::Entry& entry : node.entries) items.push_back(entry.name + ": " + text_of(entry.value));
      return "{" + joined(items) + "}";
    }
    default:
      return "";
  }
}

void read_deck_keys(ReportedRun& run) {
  YamlNode root;
  Report problems;
  if (!parse_yaml(run.deck, "deck.yaml", root, problems) || !problems.empty() || root.kind != YamlNode::Kind::map) {
    run.notes.push_back("deck.yaml is no resolved deck: it is not compared with those of other runs.");
    return;
  }
  for (const YamlNode::Entry& section : root.entries) {
    if (section.value.kind != YamlNode::Kind::map) run.keys[section.name] = text_of(section.value);
    for (const YamlNode::Entry& key : section.value.entries)
      run.keys[section.name + "." + key.name] = text_of(key.value);
  }
}

// Calls f(path) of a file of the run where it is there; else a note says that it isn't, and `without` what that costs.
template <class F>
void read_if_there(const fs::path& path, const char* without, ReportedRun& run, F f) {
  if (is_file(path)) return f(path.string());
  const bool there = fs::exists(fs::symlink_status(path));
  run.notes.push_back(path.filename().string() + (there ? " is no file: " : " is missing: ") + without + ".");
}

// A note where a file's last line has no end, as in a copy that was cut.
void note_cut(const std::string& file, const char* without, ReportedRun& run) {
  std::ifstream text(file, std::ios::binary | std::ios::ate);
  if (text.tellg() <= 0) return;
  text.seekg(-1, std::ios::end);
  if (text.get() != '\n')
    run.notes.push_back(fs::path(file).filename().string() + " ends in the middle of a line: " + without + ".");
}

// One that is cut, as a copy under way is, leaves machine, layout and planned memory unknown.
void read_job(const std::string& file, ReportedRun& run) {
  try {
    run.job = parse_json(read_text_file(file, most_job_bytes, "job_info.json"), file, {}).dump();
  } catch (const BadInput& error) {
    run.notes.push_back(std::string(error.what()) + ": machine, layout and planned memory are unknown.");
  }
}

void read_directory(const fs::path& directory, ReportedRun& run) {
  read_if_there(directory / "metrics.jsonl", "there are no curves", run,
                [&](const std::string& file) { read_run_metrics(file, run); });
  if (run.steps == 0 && is_file(directory / "metrics.jsonl"))
    run.notes.push_back("metrics.jsonl has no step: there are no curves.");
  read_if_there(directory / "log.txt", "there are no saves, signals, phases and samples", run,
                [&](const std::string& file) {
                  note_cut(file, "later saves, signals, phases and samples are unknown", run);
                  read_run_log(file, run);
                });
  read_if_there(directory / "job_info.json", "machine, layout and planned memory are unknown", run,
                [&](const std::string& file) { read_job(file, run); });
  read_if_there(directory / "deck.yaml", "the deck is unknown", run, [&](const std::string& file) {
    note_cut(file, "later keys are unknown", run);
    run.deck = replace_ill_formed(read_text_file(file, most_yaml_bytes, "the deck"));
    read_deck_keys(run);
  });
  if (const auto forced = run.keys.find("model.forced_balance"); forced != run.keys.end() && forced->second == "true")
    run.notes.push_back(
        "Balance of the experts was forced (model.forced_balance): rates and MFU are not those of a router.");
}

// Who writes in the directory now, or has left it without an end.
void note_writer(const fs::path& directory, ReportedRun& run) {
  const std::string lock = (directory / ".lock").string(), who = holder_of_lock(lock);
  if (!who.empty()) run.notes.push_back("The run still writes: " + who + ". This is its state up to now.");
  if (who.empty() && is_file(lock))
    run.notes.push_back("The last job of this run has left its lock: it was killed, or runs on another node.");
}

}  // namespace

ReportedRun read_reported_run(const std::string& path) {
  constexpr const char* legal = "; legal: a run's directory (output.directory), or its metrics.jsonl";
  ReportedRun run;
  run.path = path;
  const fs::path given = fs::path(path).lexically_normal();
  if (is_file(given)) {
    if (given.extension() != ".jsonl") throw BadInput(path + " is a file, but no metrics.jsonl" + legal);
    read_run_metrics(path, run);
    if (run.steps == 0 && run.series.empty()) throw BadInput(path + ": no line of it is a step's" + legal);
    return run;
  }
  if (!reading([&] { return fs::is_directory(given); })) throw BadInput("there is no run " + path + legal);
  const auto has = [&](const char* name) { return is_file(given / name); };
  if (!has("metrics.jsonl") && !has("job_info.json") && !has("log.txt"))
    throw BadInput(path + " has neither metrics.jsonl nor log.txt nor job_info.json" + legal);
  note_writer(given, run);
  read_directory(given, run);
  return run;
}

}  // namespace forge
