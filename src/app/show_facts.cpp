#include <type_traits>
#include <variant>

#include "app/show_parts.hpp"
#include "config/keys.hpp"
#include "core/to_size.hpp"
#include "plan/memory_plan.hpp"
#include "plan/traffic.hpp"

namespace forge {

std::vector<JsonLine> stages_json(const std::vector<MemoryPlan>& plans) {
  std::vector<JsonLine> ranks;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    JsonLine rank, bytes;
    for (int c = 0; c < category_count; ++c)
      bytes.add(name_of(static_cast<Category>(c)), plans[p].of(static_cast<Category>(c)));
    rank.add("pp_rank", p).add("peak", plans[p].peak).add("bytes", bytes);
    ranks.push_back(rank.add("total_bytes", plans[p].total()));
  }
  return ranks;
}

JsonLine memory_json(const RunSetup& s, const std::vector<MemoryPlan>& plans) {
  JsonLine memory;
  std::vector<JsonLine> allowances;
  for (const Allowance& a : gpu_allowances(s))
    allowances.push_back(JsonLine().add("name", a.name).add("bytes", a.bytes).add("reason", a.reason));
  memory.add("ranks_of_each", s.mesh.world() / s.mesh.pp).add("ranks", stages_json(plans));
  return memory.add("gpu_allowances", allowances);
}

JsonLine sent_json(const RunSetup& s, const std::vector<RankShare>& shares) {
  const SentByGroup sent = sent_by_group(s, shares);
  JsonLine groups, all;
  for (const auto& [name, traffic] : sent.groups) {
    JsonLine group, operations;
    for (int c = 0; c < collective_count; ++c)
      if (const std::int64_t calls = traffic.calls[to_size(c)]; calls > 0)
        operations.add(name_of(static_cast<Collective>(c)),
                       JsonLine().add("bytes", traffic.bytes[to_size(c)]).add("calls", calls));
    group.add("bytes", traffic.total_bytes()).add("calls", traffic.total_calls());
    groups.add(name, group.add("collectives", operations));
  }
  return all.add("shards", sent.shards).add("groups", groups);
}

namespace {

// The key's value, of the type that JSON has for it; lists of maps as the deck has them.
void add_value(JsonLine& section, const Key& key, const Deck& deck) {
  std::visit(
      [&](const auto& kind) {
        using Kind = std::decay_t<decltype(kind)>;
        if constexpr (requires { json_of(kind.access.get(deck)); } && !std::is_same_v<Kind, ChoiceKey> &&
                      !std::is_same_v<Kind, SetKey>)
          section.add(key.name, kind.access.get(deck));
        else
          section.add(key.name, value_text(key, deck));
      },
      key.kind);
}

}  // namespace

JsonLine deck_json(const Deck& deck) {
  JsonLine all;
  for (const SectionInfo& info : all_sections()) {
    JsonLine section;
    for (const Key& key : all_keys())
      if (key.section == info.name) add_value(section, key, deck);
    all.add(info.name, section);
  }
  return all;
}

}  // namespace forge
