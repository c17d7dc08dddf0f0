#include "config/mixture_keys.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "config/batch_ramp.hpp"
#include "config/key_bounds.hpp"
#include "config/map_list.hpp"
#include "config/optimizer_table.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"

namespace forge {

namespace {

constexpr std::int64_t most_epochs = 1'000'000'000, most_phase = std::int64_t{1} << 60;

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return ('0' <= c && c <= '9') || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '_' || c == '-' ||
           c == '.';
  });
}

// The rule that a named list of files breaks; `what`: "source".
template <class T>
std::string files_problem(const T& e, const std::string& where, const char* what, std::set<std::string>& names) {
  if (!is_name(e.name))
    return where + ".name = " + shown(e.name) + ": legal: 1 to 64 letters, digits, '_', '-' and '.'";
  if (!names.insert(e.name).second) return where + ".name = " + e.name + ": another " + what + " has this name";
  if (e.files.empty()) return where + ".files = []: legal: at least one path";
  for (const auto* paths : {&e.files, &e.mask_files})
    if (std::string problem = items_problem(*paths, "path"); !problem.empty())
      return where + (paths == &e.files ? ".files " : ".mask_files ") + problem;
  if (e.mask_files.empty() || e.mask_files.size() == e.files.size()) return "";
  return where + ".mask_files has " + std::to_string(e.mask_files.size()) +
         " paths; legal: " + std::to_string(e.files.size()) + ", one for each of files, or none";
}

std::string optimizer_words() {
  std::string words;
  for (const OptimizerRow& row : optimizer_table) words += (words.empty() ? "" : " | ") + std::string(row.word);
  return words;
}

MemberReader optimizer_reader(std::optional<OptimizerName>& to) {
  return [&to](const YamlNode& node) {
    for (std::size_t i = 0; node.kind == YamlNode::Kind::scalar && i < optimizer_table.size(); ++i)
      if (node.text == optimizer_table[i].word) {
        to = static_cast<OptimizerName>(i);
        return std::string();
      }
    return expected(node, optimizer_words());
  };
}

}  // namespace

std::string items_problem(const std::vector<std::string>& items, const char* noun) {
  for (const std::string& item : items) {
    if (item.empty()) return std::string("holds an empty ") + noun + "; legal: at least one character each";
    if (std::string problem = text_problem(item, true); !problem.empty()) return problem;
  }
  return "";
}

std::string legal_list(const std::vector<SourceDeck>&) {
  return "list of {name, files, weight, max_epochs, mask_files}";
}
std::string legal_list(const std::vector<PhaseDeck>&) {
  return "list of {from_step or from_tokens, weights: {name: weight}, sequence_tokens, rate}";
}
std::string legal_list(const std::vector<ValidationDeck>&) {
  return "list of {name, files, mask_files, sequences}";
}
std::string legal_list(const std::vector<OptimizerGroup>&) {
  return "list of {pattern, learning_rate, weight_decay, optimizer}";
}

std::string read_list(const YamlNode& node, std::vector<SourceDeck>& sources) {
  return read_map_list(node, sources, [](SourceDeck& s) {
    return std::vector<Member>{{"name", text_reader(s.name)},
                               {"files", paths_reader(s.files)},
                               {"mask_files", paths_reader(s.mask_files)},
                               {"weight", [&s](const YamlNode& n) { return read_number(n, s.weight); }},
                               {"max_epochs", integer_reader(s.max_epochs, 0, most_epochs)}};
  });
}

std::string read_list(const YamlNode& node, std::vector<PhaseDeck>& phases) {
  return read_map_list(node, phases, [](PhaseDeck& p) {
    return std::vector<Member>{{"from_step", integer_reader(p.from_step, 1, most_phase)},
                               {"from_tokens", integer_reader(p.from_tokens, 1, most_phase)},
                               {"weights", weights_reader(p.weights)},
                               {"sequence_tokens", integer_reader(p.sequence_tokens, 1, most_phase)},
                               {"rate", number_reader(p.rate)}};
  });
}

std::string read_list(const YamlNode& node, std::vector<ValidationDeck>& sets) {
  return read_map_list(node, sets, [](ValidationDeck& v) {
    return std::vector<Member>{{"name", text_reader(v.name)},
                               {"files", paths_reader(v.files)},
                               {"mask_files", paths_reader(v.mask_files)},
                               {"sequences", integer_reader(v.sequences, 0, most_sequences)}};
  });
}

std::string read_list(const YamlNode& node, std::vector<OptimizerGroup>& groups) {
  return read_map_list(node, groups, [](OptimizerGroup& g) {
    return std::vector<Member>{{"pattern", text_reader(g.pattern)},
                               {"learning_rate", number_reader(g.learning_rate)},
                               {"weight_decay", number_reader(g.weight_decay)},
                               {"optimizer", optimizer_reader(g.optimizer)}};
  });
}

std::string paths_text(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const auto& item : items) text += (text.size() > 1 ? ", " : "") + yaml_text(item);
  return text + "]";
}

std::string list_text(const std::vector<SourceDeck>& sources, bool paths) {
  return map_list_text(sources, [&](const SourceDeck& s) {
    std::string text = "name: " + yaml_text(s.name);
    if (paths) text += ", files: " + paths_text(s.files);
    if (paths && !s.mask_files.empty()) text += ", mask_files: " + paths_text(s.mask_files);
    if (s.weight >= 0) text += ", weight: " + format_exact(s.weight);
    if (s.max_epochs > 0 && paths) text += ", max_epochs: " + std::to_string(s.max_epochs);
    return text;
  });
}

std::string list_text(const std::vector<PhaseDeck>& phases) {
  return map_list_text(phases, [](const PhaseDeck& p) {
    std::string text = beginning_text(p);
    for (std::size_t i = 0; i < p.weights.size(); ++i)
      text +=
          (i == 0 ? ", weights: {" : ", ") + yaml_text(p.weights[i].first) + ": " + format_exact(p.weights[i].second);
    if (!p.weights.empty()) text += "}";
    if (p.sequence_tokens > 0) text += ", sequence_tokens: " + std::to_string(p.sequence_tokens);
    if (p.rate) text += ", rate: " + format_exact(*p.rate);
    return text;
  });
}

std::string list_text(const std::vector<ValidationDeck>& sets) {
  return map_list_text(sets, [](const ValidationDeck& v) {
    std::string text = "name: " + yaml_text(v.name) + ", files: " + paths_text(v.files);
    if (!v.mask_files.empty()) text += ", mask_files: " + paths_text(v.mask_files);
    if (v.sequences >= 0) text += ", sequences: " + std::to_string(v.sequences);
    return text;
  });
}

std::string list_text(const std::vector<OptimizerGroup>& groups) {
  return map_list_text(groups, [](const OptimizerGroup& g) {
    std::string text = "pattern: " + yaml_text(g.pattern);
    if (g.learning_rate) text += ", learning_rate: " + format_exact(*g.learning_rate);
    if (g.weight_decay) text += ", weight_decay: " + format_exact(*g.weight_decay);
    if (g.optimizer) text += std::string(", optimizer: ") + row_of(*g.optimizer).word;
    return text;
  });
}

std::string list_problem(const std::vector<SourceDeck>& sources) {
  std::set<std::string> names;
  double sum = 0;
  std::size_t weighed = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const SourceDeck& s = sources[i];
    const std::string where = "[" + std::to_string(i) + "]";
    if (std::string problem = files_problem(s, where, "source", names); !problem.empty()) return problem;
    weighed += s.weight >= 0;
    sum += std::max(s.weight, 0.0);
  }
  if (weighed > 0 && weighed < sources.size())
    return "has a weight for " + std::to_string(weighed) + " of " + std::to_string(sources.size()) +
           " sources; legal: all, or none: then a source weighs its number of samples";
  if (weighed > 0 && (sum <= 0 || !std::isfinite(sum)))
    return "has weights of sum " + format_exact(sum) + "; legal: > 0";
  return "";
}

std::string list_problem(const std::vector<PhaseDeck>& phases) {
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const PhaseDeck& p = phases[i];
    const std::string where = "[" + std::to_string(i) + "]";
    if (std::string problem = beginning_problem(p, where); !problem.empty()) return problem;
    if (p.weights.empty() && p.sequence_tokens == 0 && !p.rate)
      return where + " changes nothing; legal: at least one of weights, sequence_tokens and rate";
    double sum = 0;
    for (const auto& [name, weight] : p.weights) sum += weight;
    if (!p.weights.empty() && (sum <= 0 || !std::isfinite(sum)))
      return where + ".weights has a sum of " + format_exact(sum) + "; legal: > 0";
  }
  return "";
}

std::string list_problem(const std::vector<ValidationDeck>& sets) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < sets.size(); ++i)
    if (std::string problem = files_problem(sets[i], "[" + std::to_string(i) + "]", "set", names); !problem.empty())
      return problem;
  return "";
}

std::string list_problem(const std::vector<OptimizerGroup>& groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const OptimizerGroup& g = groups[i];
    const std::string where = "[" + std::to_string(i) + "]";
    if (g.pattern.empty()) return where + " has no pattern; legal: a tensor's name, * and ? for its varying parts";
    if (!g.learning_rate && !g.weight_decay && !g.optimizer)
      return where + " says nothing of " + shown(g.pattern) + "; legal: learning_rate, weight_decay, optimizer";
  }
  return "";
}

double rate_factor(const Deck& deck, std::int64_t step) {
  double factor = 1;
  for (const PhaseDeck& phase : deck.data.phases)
    if (first_step_of(phase, deck.train) <= step) factor = phase.rate.value_or(1);
  return factor;
}

std::int64_t first_step_of(const PhaseDeck& phase, const TrainDeck& train) {
  if (phase.from_step > 0) return phase.from_step;
  return BatchSizes(train).first_step_behind(phase.from_tokens, train.sequence_tokens);
}

}  // namespace forge
