#include "model/update_rule.hpp"

#include <algorithm>

#include "config/optimizer_table.hpp"
#include "config/pattern.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// Tables, the output matrix and vectors aren't matrices in the sense of optimizers that need whole ones.
bool can_be_whole(UnitKind kind, const Parameter& parameter) {
  return (kind == UnitKind::block || is_of_experts(kind) || is_adapter(kind)) && !holds_vectors(parameter.section);
}

const OptimizerGroup* group_of(const OptimizerDeck& deck, const std::string& name) {
  const auto found = std::find_if(deck.groups.begin(), deck.groups.end(),
                                  [&](const OptimizerGroup& g) { return matches(g.pattern, name); });
  return found == deck.groups.end() ? nullptr : &*found;
}

}  // namespace

UpdateRule update_rule(const OptimizerDeck& deck, UnitKind kind, const Parameter& parameter) {
  const OptimizerGroup* const group = group_of(deck, parameter.name);
  const bool has_whole = row_of(deck.name).whole_matrices();
  UpdateRule rule;
  rule.whole = has_whole && can_be_whole(kind, parameter) &&
               !(group && group->optimizer && !row_of(*group->optimizer).whole_matrices());
  rule.learning_rate =
      has_whole && !rule.whole && deck.adam_learning_rate > 0 ? deck.adam_learning_rate : deck.learning_rate;
  rule.weight_decay = parameter.decays() ? deck.weight_decay : 0;
  if (group && group->learning_rate) rule.learning_rate = *group->learning_rate;
  if (group && group->weight_decay) rule.weight_decay = *group->weight_decay;
  return rule;
}

void freeze(const std::vector<std::string>& patterns, std::vector<Unit>& units) {
  if (std::any_of(units.begin(), units.end(), [](const Unit& unit) { return is_adapter(unit.kind); })) {
    for (Unit& unit : units) unit.frozen = !is_adapter(unit.kind);
    return;
  }
  std::vector<bool> used(patterns.size(), false);
  const auto is_frozen = [&](const Parameter& parameter) {
    bool found = false;
    for (std::size_t i = 0; i < patterns.size(); ++i)
      if (matches(patterns[i], parameter.name) || matches(patterns[i], parameter.hf_name)) used[i] = found = true;
    return found;
  };
  for (Unit& unit : units) {
    const Parameter *in = nullptr, *out = nullptr;
    for (const Parameter& parameter : unit.parameters) (is_frozen(parameter) ? in : out) = &parameter;
    if (in && out)
      throw BadInput("train.frozen matches " + in->name + " and not " + out->name +
                     ", which are of one unit: units are frozen whole; legal: patterns of all tensors of a block (" +
                     unit.name + ".*), of its experts, or of a table");
    unit.frozen = in != nullptr;
  }
  for (std::size_t i = 0; i < patterns.size(); ++i)
    if (!used[i])
      throw BadInput("train.frozen[" + std::to_string(i) + "] = " + patterns[i] +
                     " matches no tensor; `forge show` lists their names, such as " +
                     units.front().parameters.front().name);
  if (std::all_of(units.begin(), units.end(), [](const Unit& unit) { return unit.frozen; }))
    throw BadInput("train.frozen matches every tensor: nothing is left to train; legal: fewer patterns");
}

void check_groups(const OptimizerDeck& deck, const std::vector<Unit>& units) {
  std::vector<bool> matched(deck.groups.size(), false), used = matched;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters) {
      for (std::size_t g = 0; g < deck.groups.size(); ++g)
        matched[g] = matched[g] || matches(deck.groups[g].pattern, parameter.name);
      const OptimizerGroup* const group = group_of(deck, parameter.name);
      if (group) used[to_size(group - deck.groups.data())] = true;
      if (group && group->optimizer && row_of(*group->optimizer).whole_matrices() &&
          !can_be_whole(unit.kind, parameter))
        throw BadInput("optimizer.groups: " + group->pattern + " has optimizer = " + row_of(*group->optimizer).word +
                       " and matches " + parameter.name + ", which is no matrix of a block; legal: adamw");
    }
  for (std::size_t g = 0; g < deck.groups.size(); ++g) {
    const std::string pattern = "optimizer.groups[" + std::to_string(g) + "].pattern = " + deck.groups[g].pattern;
    if (!matched[g])
      throw BadInput(pattern + " matches no tensor; `forge show` lists their names, such as " +
                     units.front().parameters.front().name);
    if (!used[g])
      throw BadInput(pattern + " matches only tensors that groups before it have; legal: the group of fewer tensors " +
                     "first");
  }
}

}  // namespace forge
