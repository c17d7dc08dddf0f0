#pragma once

#include <array>

// The deck's optimizers. A new one stands here, in a file of its own in optim/, and in the table optim/rule.hpp.

namespace forge {

enum class OptimizerName : int { adamw };

// The deck's words for them, in this order, and what `forge help` says.
inline constexpr std::array optimizer_words{"adamw"};
inline constexpr const char* optimizer_doc = "update rule; decay follows the tensor's rank: norms and biases have none";

}  // namespace forge
