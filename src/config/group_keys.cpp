#include "config/group_keys.hpp"

#include "config/map_list.hpp"
#include "config/optimizer_table.hpp"
#include "core/bytes.hpp"

namespace forge {

namespace {

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

std::string legal_list(const std::vector<OptimizerGroup>&) {
  return "list of {pattern, learning_rate, weight_decay, optimizer}";
}

std::string read_list(const YamlNode& node, std::vector<OptimizerGroup>& groups) {
  return read_map_list(node, groups, [](OptimizerGroup& g) {
    return std::vector<Member>{{"pattern", text_reader(g.pattern)},
                               {"learning_rate", number_reader(g.learning_rate)},
                               {"weight_decay", number_reader(g.weight_decay)},
                               {"optimizer", optimizer_reader(g.optimizer)}};
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

std::string list_problem(const std::vector<OptimizerGroup>& groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const OptimizerGroup& g = groups[i];
    const std::string where = "[" + std::to_string(i) + "]";
    if (g.pattern.empty()) return where + " has no pattern; legal: a tensor's name, * and ? for what varies";
    if (!g.learning_rate && !g.weight_decay && !g.optimizer)
      return where + " says nothing of " + shown(g.pattern) + "; legal: learning_rate, weight_decay, optimizer";
  }
  return "";
}

}  // namespace forge
