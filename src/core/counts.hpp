#pragma once

#include <cstdint>
#include <string>

namespace forge {

// "4.7 M", "1.2 G", "812": FLOP for people, powers of 1000. Parameters and tokens have format_count of core/bytes.hpp.
std::string format_flops(double flops);
// "1 rank", "2 ranks"; `several` where it isn't `one` with an s.
std::string counted(std::int64_t count, const std::string& one, const std::string& several = "");

}  // namespace forge
