#include "config/mixture_keys.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "config/text.hpp"
#include "config/values.hpp"
#include "core/bytes.hpp"

namespace forge {

namespace {

constexpr std::int64_t most_epochs = 1'000'000'000, most_phase = std::int64_t{1} << 60;

// Reads one member of a map into where it belongs; "" or what is wrong.
using MemberReader = std::function<std::string(const YamlNode&)>;
struct Member {
  const char* name;
  MemberReader read;
};

std::string expected(const YamlNode& node, const std::string& legal) {
  return "= " + kind_of(node) + ": legal: " + legal;
}

MemberReader text_reader(std::string& to) {
  return [&to](const YamlNode& node) {
    if (node.kind != YamlNode::Kind::scalar) return expected(node, "text");
    to = node.text;
    return std::string();
  };
}

MemberReader paths_reader(std::vector<std::string>& to) {
  return [&to](const YamlNode& node) {
    if (node.kind != YamlNode::Kind::list) return expected(node, "list of paths");
    for (const YamlNode& item : node.items) {
      if (item.kind != YamlNode::Kind::scalar) return expected(item, "path");
      to.push_back(item.text);
    }
    return std::string();
  };
}

std::string read_number(const YamlNode& node, double& to) {
  const auto value =
      node.kind == YamlNode::Kind::scalar && node.plain ? parse_number(node.text) : std::optional<double>();
  if (!value || *value < 0) return expected(node, "number, >= 0");
  to = *value;
  return "";
}

MemberReader integer_reader(std::int64_t& to, std::int64_t least, std::int64_t most) {
  return [&to, least, most](const YamlNode& node) {
    const auto value =
        node.kind == YamlNode::Kind::scalar && node.plain ? parse_whole(node.text) : std::optional<std::int64_t>();
    if (!value || *value < least || *value > most)
      return expected(node, "integer, " + std::to_string(least) + " to " + std::to_string(most));
    to = *value;
    return std::string();
  };
}

MemberReader weights_reader(std::vector<std::pair<std::string, double>>& to) {
  return [&to](const YamlNode& node) {
    if (node.kind != YamlNode::Kind::map) return expected(node, "map of names and weights");
    for (const YamlNode::Entry& entry : node.entries) {
      double weight = 0;
      if (const std::string problem = read_number(entry.value, weight); !problem.empty())
        return "." + shown(entry.name) + " " + problem;
      to.emplace_back(entry.name, weight);
    }
    return std::string();
  };
}

// A list of maps, each read by the members that `members_of` gives for the element that it is put into.
template <class T, class MembersOf>
std::string read_list(const YamlNode& node, std::vector<T>& list, const std::string& legal, MembersOf members_of) {
  if (node.kind != YamlNode::Kind::list) return expected(node, legal);
  if (node.items.size() > most_sources) return "has more than " + std::to_string(most_sources) + " entries";
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const std::string where = "[" + std::to_string(i) + "]";
    const YamlNode& item = node.items[i];
    if (item.kind != YamlNode::Kind::map) return where + " " + expected(item, legal);
    T element;
    const std::vector<Member> members = members_of(element);
    for (const YamlNode::Entry& entry : item.entries) {
      const auto member =
          std::find_if(members.begin(), members.end(), [&](const Member& m) { return entry.name == m.name; });
      if (member == members.end()) return where + "." + shown(entry.name) + ": unknown; legal: " + legal;
      if (entry.value.kind == YamlNode::Kind::null) continue;
      if (const std::string problem = member->read(entry.value); !problem.empty())
        return where + "." + entry.name + (problem.starts_with(".") ? "" : " ") + problem;
    }
    list.push_back(std::move(element));
  }
  return "";
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return ('0' <= c && c <= '9') || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '_' || c == '-' ||
           c == '.';
  });
}

std::string paths_problem(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path.empty()) return "holds an empty path";
    if (std::string problem = text_problem(path, true); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace

std::string legal_sources() {
  return "list of {name, files, weight, max_epochs, mask_files}";
}

std::string legal_phases() {
  return "list of {from_step or from_tokens, weights: {name: weight}}";
}

std::string read_sources(const YamlNode& node, std::vector<SourceDeck>& sources) {
  return read_list(node, sources, legal_sources(), [](SourceDeck& s) {
    return std::vector<Member>{{"name", text_reader(s.name)},
                               {"files", paths_reader(s.files)},
                               {"mask_files", paths_reader(s.mask_files)},
                               {"weight", [&s](const YamlNode& n) { return read_number(n, s.weight); }},
                               {"max_epochs", integer_reader(s.max_epochs, 0, most_epochs)}};
  });
}

std::string read_phases(const YamlNode& node, std::vector<PhaseDeck>& phases) {
  return read_list(node, phases, legal_phases(), [](PhaseDeck& p) {
    return std::vector<Member>{{"from_step", integer_reader(p.from_step, 2, most_phase)},
                               {"from_tokens", integer_reader(p.from_tokens, 1, most_phase)},
                               {"weights", weights_reader(p.weights)}};
  });
}

std::string paths_text(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const auto& item : items) text += (text.size() > 1 ? ", " : "") + yaml_text(item);
  return text + "]";
}

std::string sources_text(const std::vector<SourceDeck>& sources, bool paths) {
  std::string text = "[";
  for (const SourceDeck& s : sources) {
    text += (text.size() > 1 ? ", {name: " : "{name: ") + yaml_text(s.name);
    if (paths) text += ", files: " + paths_text(s.files);
    if (paths && !s.mask_files.empty()) text += ", mask_files: " + paths_text(s.mask_files);
    if (s.weight >= 0) text += ", weight: " + format_exact(s.weight);
    if (s.max_epochs > 0 && paths) text += ", max_epochs: " + std::to_string(s.max_epochs);
    text += "}";
  }
  return text + "]";
}

std::string phases_text(const std::vector<PhaseDeck>& phases) {
  std::string text = "[";
  for (const PhaseDeck& p : phases) {
    text += text.size() > 1 ? ", {" : "{";
    text +=
        p.from_step > 0 ? "from_step: " + std::to_string(p.from_step) : "from_tokens: " + std::to_string(p.from_tokens);
    text += ", weights: {";
    bool first = true;
    for (const auto& [name, weight] : p.weights) {
      text += (first ? "" : ", ") + yaml_text(name) + ": " + format_exact(weight);
      first = false;
    }
    text += "}}";
  }
  return text + "]";
}

std::string sources_problem(const std::vector<SourceDeck>& sources) {
  std::set<std::string> names;
  double sum = 0;
  std::size_t weighed = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const SourceDeck& s = sources[i];
    const std::string where = "[" + std::to_string(i) + "]";
    if (!is_name(s.name))
      return where + ".name = " + shown(s.name) + ": legal: 1 to 64 letters, digits, '_', '-' and '.'";
    if (!names.insert(s.name).second) return where + ".name = " + s.name + ": another source has this name";
    if (s.files.empty()) return where + ".files = []: legal: at least one path";
    for (const auto* paths : {&s.files, &s.mask_files})
      if (std::string problem = paths_problem(*paths); !problem.empty())
        return where + (paths == &s.files ? ".files " : ".mask_files ") + problem;
    if (!s.mask_files.empty() && s.mask_files.size() != s.files.size())
      return where + ".mask_files has " + std::to_string(s.mask_files.size()) +
             " paths; legal: " + std::to_string(s.files.size()) + ", one for each of files, or none";
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

std::string phases_problem(const std::vector<PhaseDeck>& phases) {
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const PhaseDeck& p = phases[i];
    const std::string where = "[" + std::to_string(i) + "]";
    if ((p.from_step > 0) == (p.from_tokens > 0))
      return where + " gives " + (p.from_step > 0 ? "both" : "none") +
             " of from_step and from_tokens; legal: one of them";
    double sum = 0;
    for (const auto& [name, weight] : p.weights) sum += weight;
    if (sum <= 0 || !std::isfinite(sum)) return where + ".weights has a sum of " + format_exact(sum) + "; legal: > 0";
  }
  return "";
}

std::int64_t first_step_of(const PhaseDeck& phase, const TrainDeck& train) {
  if (phase.from_step > 0) return phase.from_step;
  const std::int64_t tokens = std::max<std::int64_t>(train.global_batch_sequences * train.sequence_tokens, 1);
  return phase.from_tokens / tokens + (phase.from_tokens % tokens != 0) + 1;
}

}  // namespace forge
