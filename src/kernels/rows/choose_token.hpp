#pragma once

#include <cstdint>

#include "core/token_choice.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// chosen[0] = a token of the row of logits(V): larger logits come first, of equal ones lower ids. −1 where a logit is
// NaN or +Inf, or where all are −Inf. The same token on every device and number of threads.
template <class A>
void choose_token(Stream&, View<const A, 1> logits, const TokenChoice& how, const ChoiceWorkspace<A>& workspace,
                  View<std::int32_t, 1> chosen);

}  // namespace forge
