#pragma once

#include <string>
#include <vector>

#include "app/command_line.hpp"

namespace forge {

// Words of a line before its options are read, and lists in options.

// Whether the line asks for help, by a verb or an option, or by an option for the version; then `c` is complete.
bool asks_for_help(std::vector<std::string>& words, CommandLine& c);
// The verb of the line, taken out of it; train where there is none. BadInput: the first word is neither a verb nor a
// deck.
std::string take_verb(std::vector<std::string>& words);
// --restart alone is latest: the word behind it is its value only where it can't be the deck.
void complete_restart(std::vector<std::string>& words);

// The values of options that may be lists, separated by commas. BadInput names the legal ones.
void read_tokens(const std::string& text, CommandLine& c);
void read_models(const std::string& text, CommandLine& c);
void read_nodes(const std::string& text, CommandLine& c);
void read_replayed(const std::string& text, CommandLine& c);
void read_ranks(const std::string& text, CommandLine& c);

// Throws BadInput where options of plan --grid stand without it, or with options of another question.
void check_grid(const CommandLine& c);

}  // namespace forge
