#pragma once

#include <array>

namespace forge {

// The words of model.dispatch, by DispatchMethod.
inline constexpr std::array dispatch_words{"automatic", "all_to_all", "two_level", "all_gather"};

}  // namespace forge
