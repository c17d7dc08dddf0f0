#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "plan/setup.hpp"

namespace forge {

// "0 to 2, 5": ascending numbers, neighbours drawn together; of many pieces the first three and the last.
std::string ranges_text(const std::vector<std::int64_t>& numbers);

// What a person asks of a model's experts, for `forge show`: the expert view of the mesh, what a rank has of them,
// parameters in all and at work for a token, rows and bytes of a round of dispatch. "" without experts.
std::string expert_text(const RunSetup& setup);
// Its numbers; nothing without experts.
JsonLine expert_json(const RunSetup& setup);

}  // namespace forge
