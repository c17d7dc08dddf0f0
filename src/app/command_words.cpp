#include "app/command_words.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "app/verb_help.hpp"
#include "core/error.hpp"
#include "core/parse.hpp"

namespace forge {

namespace {

constexpr int most_thread_ranks = 1024, most_shown_ranks = 1 << 20, most_nodes = 1 << 14;

}  // namespace

void complete_restart(std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != "--restart") continue;
    const std::string next = i + 1 < words.size() ? words[i + 1] : "";
    // A checkpoint's files are no decks: checkpoint.directory has one named latest.
    const bool stored = next.ends_with(".h5") || std::filesystem::path(next).filename() == "latest";
    const bool deck =
        next.ends_with(".yaml") || next.ends_with(".yml") || (!stored && std::filesystem::is_regular_file(next));
    if (i + 1 == words.size() || next.starts_with('-') || deck) words[i] = "--restart=latest";
  }
}

std::string take_verb(std::vector<std::string>& words) {
  const std::string first = words.front();
  if (verbs().contains(first)) {
    words.erase(words.begin());
    return first;
  }
  if (first.find('.') == std::string::npos && first.find('/') == std::string::npos && !first.starts_with('-') &&
      !std::filesystem::is_regular_file(first))
    throw BadInput(unknown_verb_text(first));
  return "train";
}

bool asks_for_help(std::vector<std::string>& words, CommandLine& c) {
  const auto is_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (is_help(words.front())) words.front() = "help";
  if (words.front() == "--version" || words.front() == "-V") words.front() = "version";
  const auto end = std::find(words.begin(), words.end(), "--");
  if (words.front() == "version" && words.size() == 1) {
    c.verb = Verb::version;
    return true;
  }
  if (words.front() == "help" && words.size() == 1) {
    c.verb = Verb::help;
    return true;
  }
  if (std::none_of(words.begin(), end, is_help)) return false;
  c.verb = Verb::help;
  c.inputs = {take_verb(words)};
  return true;
}

void read_tokens(const std::string& text, CommandLine& c) {
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (!reads_as(trimmed(part), c.prompt_tokens.emplace_back()))
      throw BadInput("--tokens " + text + ": '" + part + "' is no token id; legal: ids separated by commas");
  }
}

void read_replayed(const std::string& text, CommandLine& c) {
  std::stringstream stream(text);
  for (std::string file; std::getline(stream, file, ',');) c.replayed.emplace_back(trimmed(file));
  const char* legal = "; legal: of a rank of the first stage, of one between, and of the last, separated by commas";
  if (c.replayed.size() > 3)
    throw BadInput("--replayed " + text + ": " + std::to_string(c.replayed.size()) + " files" + legal);
  if (c.replayed.empty() || std::count(c.replayed.begin(), c.replayed.end(), "") > 0)
    throw BadInput("--replayed " + text + ": a file without a name" + legal);
}

void read_models(const std::string& text, CommandLine& c) {
  for (const std::string_view part : parts_of(text, ',')) {
    const std::string word(trimmed(part));
    if (word.empty()) throw BadInput("--models " + text + ": a name is empty; legal: models separated by commas");
    if (std::find(c.models.begin(), c.models.end(), word) != c.models.end())
      throw BadInput("--models " + text + ": " + word + " is there twice; legal: each once");
    c.models.push_back(word);
  }
}

void read_nodes(const std::string& text, CommandLine& c) {
  for (const std::string_view part : parts_of(text, ',')) {
    int nodes = 0;
    const bool legal = reads_as(trimmed(part), nodes) && nodes >= 1 && nodes <= most_nodes;
    if (!legal || std::find(c.nodes.begin(), c.nodes.end(), nodes) != c.nodes.end())
      throw BadInput("--nodes " + text + ": legal are whole numbers from 1 to " + std::to_string(most_nodes) +
                     ", separated by commas, each once");
    c.nodes.push_back(nodes);
  }
}

void check_grid(const CommandLine& c) {
  if (!c.grid) {
    if (!c.models.empty() || !c.nodes.empty() || !c.svg.empty())
      throw BadInput("--models, --nodes and --svg are of --grid; legal: with --grid");
    return;
  }
  if (c.search || !c.candidates.empty() || !c.fit.empty() || !c.replayed.empty() || !c.trace.empty())
    throw BadInput("--grid is a search for each cell, without --search, --candidates, --fit, --replayed and --trace");
  for (const std::string& setting : c.set)
    if (setting.starts_with("mesh.") || setting.starts_with("schedule."))
      throw BadInput("--grid searches mesh and schedule of each cell, and would ignore --set " + setting +
                     "; legal: keys of model, train, optimizer, …");
  if (c.best != CommandLine().best) throw BadInput("--best is of --search: --grid keeps the best layout of each cell");
  if (!c.nodes.empty() && !c.rank_counts.empty()) throw BadInput("--nodes and --ranks exclude each other");
  if (!c.svg.empty() && !c.svg.ends_with(".svg"))
    throw BadInput("--svg " + c.svg + ": legal is a file whose name ends with .svg");
}

void read_ranks(const std::string& text, CommandLine& c) {
  const bool alone = c.verb == Verb::show || c.verb == Verb::plan || c.verb == Verb::replay;
  const int most = alone ? most_shown_ranks : most_thread_ranks;
  const auto refuse = [&](const std::string& more) {
    throw BadInput("--ranks " + text + ": legal is a whole number from 1 to " + std::to_string(most) + more);
  };
  const bool list = c.verb == Verb::plan && (c.search || c.grid);
  for (std::size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
    end = list ? std::min(text.find(',', begin), text.size()) : text.size();
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    if (!reads_as(list ? trimmed(word) : word, c.ranks) || c.ranks < 1 || c.ranks > most)
      refuse(list                   ? ", or several, separated by commas"
             : c.verb == Verb::plan ? "; several, separated by commas, are of --search and --grid"
                                    : "");
    if (std::find(c.rank_counts.begin(), c.rank_counts.end(), c.ranks) != c.rank_counts.end()) refuse(", each once");
    c.rank_counts.push_back(c.ranks);
  }
}

}  // namespace forge
