#include "app/outputs.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "core/error.hpp"

namespace forge {

namespace {

namespace fs = std::filesystem;

// What a verb writes under the name that its option gives, not the directories of several files.
std::vector<std::string> written_files(const CommandLine& c) {
  std::vector<std::string> files;
  const bool writes_output = c.verb == Verb::gradients || c.verb == Verb::plan || c.verb == Verb::calibrate ||
                             c.verb == Verb::check || c.verb == Verb::report ||
                             ((c.verb == Verb::score || c.verb == Verb::generate) && c.output != "-");
  if (writes_output) files.push_back(c.output);
  if (c.verb == Verb::calibrate && c.output.empty()) files.push_back("inputs/machines/this.yaml");
  if (c.verb == Verb::plan || c.verb == Verb::replay) files.insert(files.end(), {c.json, c.trace, c.svg});
  for (const std::string& drawing : {c.schedule, c.memory})
    if (c.verb == Verb::show && drawing.starts_with("svg:")) files.push_back(drawing.substr(4));
  std::erase(files, "");
  return files;
}

std::vector<std::string> read_files(const CommandLine& c) {
  std::vector<std::string> files = c.inputs;
  files.insert(files.end(), {c.prompts, c.files_from, c.candidates, c.tokenizer, c.pattern, c.program, c.gpu, c.cost});
  if ((c.verb != Verb::calibrate || !c.machine.empty()) && c.fit.empty()) {
    const std::string name = c.machine.empty() ? "this" : c.machine;
    files.insert(files.end(), {name, "inputs/machines/" + name + ".yaml"});
  }
  files.insert(files.end(), c.replayed.begin(), c.replayed.end());
  if (c.verb == Verb::report)
    for (const std::string& run : c.inputs)
      for (const char* name : {"/deck.yaml", "/metrics.jsonl", "/log.txt", "/job_info.json"})
        files.push_back(run + name);
  files.insert(files.end(), c.models.begin(), c.models.end());
  for (const std::string& run : c.fit)
    for (const char* name : {"/deck.yaml", "/metrics.jsonl"}) files.push_back(run + name);
  std::erase(files, "");
  return files;
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

std::vector<std::string> files_of(const Deck& deck) {
  std::vector<std::string> files = deck.data.files;
  append(files, deck.data.mask_files);
  for (const ValidationDeck& set : deck.data.held_out()) {
    append(files, set.files);
    append(files, set.mask_files);
  }
  append(files, deck.data.tasks);
  for (const SourceDeck& source : deck.data.sources) {
    append(files, source.files);
    append(files, source.mask_files);
  }
  files.push_back(deck.schedule.file);
  for (const std::string& model : {deck.model.hf, deck.model.tokenizer, deck.checkpoint.model_from}) {
    files.push_back(model);
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(model, none)) files.push_back(entry.path());
  }
  std::erase(files, "");
  return files;
}

}  // namespace

void check_outputs(const CommandLine& line) {
  const bool needs_output = line.verb == Verb::gradients || line.verb == Verb::score || line.verb == Verb::tokenize ||
                            line.verb == Verb::export_model || line.verb == Verb::report;
  if (needs_output && line.output.empty()) throw BadInput("--output is empty; legal: the name of the file to write");
  const std::vector<std::string> written = written_files(line), read = read_files(line);
  for (std::size_t i = 0; i < written.size(); ++i) {
    check_output(read, written[i]);
    for (std::size_t j = 0; j < i; ++j)
      if (fs::path(written[i]).lexically_normal() == fs::path(written[j]).lexically_normal())
        throw BadInput("two outputs are to be written to " + written[i] + "; legal: a file for each");
  }
}

void check_outputs(const CommandLine& line, const Deck& deck) {
  for (const std::string& file : written_files(line)) check_output(files_of(deck), file);
}

std::list<OutputLock> lock_outputs(const CommandLine& line) {
  std::list<OutputLock> locks;
  for (const std::string& file : written_files(line)) locks.emplace_back(file, "the output");
  return locks;
}

void keep_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

std::string lost_output() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  int error = errno;
  std::cout.flush();
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return "";
  if (error == 0 && ::write(STDOUT_FILENO, "\n", 1) < 0) error = errno;  // of an earlier call, it isn't known any more
  return std::string("standard output could not be written") +
         (error != 0 ? std::string(": ") + std::strerror(error) : "");
}

}  // namespace forge
