#include "model/parameters.hpp"

#include "core/error.hpp"

namespace forge {

std::int64_t Parameter::elements() const {
  std::int64_t n = 1;
  for (const auto extent : shape) n *= extent;
  return n;
}

std::vector<RowRun> row_runs(const Parameter& p) {
  if (p.hf_groups == 0) return {{0, 0, p.shape[0]}};
  std::vector<RowRun> runs;
  std::int64_t there = 0;
  for (std::int64_t group = 0; group < p.hf_groups; ++group)
    for (const Split& part : p.split) {
      const std::int64_t rows = part.extent / p.hf_groups;
      runs.push_back({part.begin + group * rows, there, rows});
      there += rows;
    }
  require(there == p.shape[0], "a tensor's parts don't make all of its rows");
  return runs;
}

std::int64_t parameter_count(const std::vector<Unit>& units) {
  std::int64_t n = 0;
  for (const auto& unit : units)
    for (const auto& p : unit.parameters) n += p.elements();
  return n;
}

NormalNumbers initial_values(std::uint64_t seed, const Parameter& parameter) {
  const std::uint64_t key = random_key(seed, Purpose::initial_values, hash_of(parameter.name));
  return {key, parameter.initial == Initial::ones ? 1. : 0., parameter.initial == Initial::normal ? parameter.std : 0.};
}

UniformNumbers uniform_values(std::uint64_t seed, const Parameter& parameter) {
  return {random_key(seed, Purpose::initial_values, hash_of(parameter.name)), parameter.std,
          parameter.initial == Initial::log_uniform};
}

std::string_view name_of(UnitKind kind) {
  constexpr std::string_view names[] = {"token_table", "position_table", "block",   "experts",
                                        "output",      "final_norm",     "adapter", "expert_adapter"};
  return names[to_size(kind)];
}

}  // namespace forge
