#include "app/command_words.hpp"

#include <algorithm>
#include <filesystem>

#include "app/verb_help.hpp"
#include "core/error.hpp"

namespace forge {

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

}  // namespace forge
