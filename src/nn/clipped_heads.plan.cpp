#include "nn/clipped_heads.plan.hpp"

#include <string_view>

namespace forge {

std::vector<ClippedRows> clipped_rows(const ModelSpec& s, const Parameter& parameter) {
  using enum HeadFactor;
  constexpr std::string_view place = ".attention.", bias = "_bias";
  std::string_view name = parameter.name;
  const std::size_t at = name.find(place);
  if (at == std::string_view::npos) return {};
  name.remove_prefix(at + place.size());
  if (name.ends_with(bias)) name.remove_suffix(bias.size());
  if (s.mla()) {
    const std::int64_t nope = s.options.nope_dim;
    if (name == "q" || name == "q_up") return {{0, s.H(), s.D(), nope, query, query_whole}};
    if (name == "kv_up") return {{0, s.H(), nope + s.value_dim(), nope, key, none}};
    return {};
  }
  const ClippedRows queries{0, s.H(), s.D(), s.D(), query, none}, keys{0, s.K(), s.D(), s.D(), key, none};
  if (name == "q") return {queries};
  if (name == "k") return {keys};
  if (name != "qkv") return {};
  ClippedRows behind = keys;
  behind.begin = s.q_columns();
  return {queries, behind};
}

}  // namespace forge
