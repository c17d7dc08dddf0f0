#include "app/searched_deck.hpp"

#include <omp.h>

#include <algorithm>
#include <string_view>

#include "app/job.hpp"
#include "app/plan_text.hpp"
#include "app/short_deck.hpp"
#include "core/bytes.hpp"
#include "core/parse.hpp"
#include "predict/search_space.hpp"

namespace forge {

namespace {

// A comment's lines.
std::string commented(const std::string& text) {
  std::string lines = "# ";
  for (const char c : text) lines += c == '\n' ? std::string("\n# ") : std::string(1, c);
  return lines + "\n";
}

}  // namespace

Deck searched_deck(const CommandLine& line) {
  CommandLine any = line;
  for (const std::string& setting : plain_settings()) any.set.push_back(setting);
  return load_deck(any, Needs::training, 1);
}

SearchOptions search_options(const CommandLine& line, int ranks, int best, double seconds) {
  return {ranks, best, line.seconds > 0 ? line.seconds : seconds, omp_get_max_threads()};
}

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("_-./:=,+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string search_words(const CommandLine& line) {
  std::string text = " --machine " + shell_word(line.machine.empty() ? "this" : line.machine);
  if (!line.program.empty()) text += " --as " + shell_word(line.program);
  if (line.imbalance > 1) text += " --imbalance " + format_exact(line.imbalance);
  if (line.seconds > 0) text += " --seconds " + format_exact(line.seconds);
  for (const std::string& set : line.set) text += " --set " + shell_word(set);
  return text;
}

std::string layout_deck(const Machine& machine, const Outcome& o, const std::string& model,
                        const std::string& command) {
  const int ranks = static_cast<int>(ranks_of(o.deck.mesh));
  const std::string text =
      formatted("predicted: %.4g s a step (%.4g to %.4g), %.0f tokens/s a %s, mfu %.1f %%, %s of %s a %s",
                o.time.seconds, o.time.low, o.time.high, o.time.tokens_per_second, rank_word(machine), 100 * o.time.mfu,
                format_bytes(o.memory.total()).c_str(), format_bytes(o.usable).c_str(), rank_word(machine));
  return commented("A layout of " + model + " for " + counted(ranks, "rank") + " of " + machine.name + ": " +
                   machine.description + "\n" + text + "\nfound by: " + command) +
         short_deck(o.deck, ranks);
}

}  // namespace forge
