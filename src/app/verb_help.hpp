#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/command_line.hpp"

namespace forge {

// A verb as help shows it.
struct VerbEntry {
  Verb verb;
  const char* arguments;
  const char* purpose;
  const char* examples;  // a line each
};
const std::map<std::string, VerbEntry>& verbs();
// "forge evaluate", for messages; "forge" without a verb.
std::string verb_of(const CommandLine& line);

// An option as help shows it: "--set KEY=VALUE", and its effect.
struct OptionText {
  std::string form, meaning;
};
// In the order of the options' declaration (command_line.cpp).
std::vector<OptionText> option_texts(Verb verb);

// `forge help`: every verb in a line, and where more stands.
std::string usage();
// `forge VERB --help`: usage, examples and options.
std::string verb_help(const std::string& verb);
// `forge help NAME`: a verb, a section of the deck ("train." where a verb has its name), a key, or "keys" for all keys.
// BadInput names similar ones.
std::string help_of_name(const std::string& name);

// The error of a first word that is neither a verb nor a deck, with the verb that is meant.
std::string unknown_verb_text(const std::string& word);
// The remedy for an option that a verb doesn't take; "" where nobody can know.
std::string option_hint(const std::string& verb, const std::string& option);
// "; legal: --set, --ranks, …": of a verb.
std::string option_list(const std::string& verb);
// "; it is an option of train": of a word that is none of a verb, a section or a key. "": nor of an option.
std::string option_of_verbs(const std::string& word);
// The remedy for a word that a verb has no place for: an assignment without --set, or with a space in its --set
// (`settings`), a verb behind its options, a text without quotes.
std::string word_hint(const std::string& verb, const std::vector<std::string>& words,
                      const std::vector<std::string>& settings);

}  // namespace forge
