#pragma once

#include <cstddef>
#include <optional>

namespace forge {

// Bytes of this rank's GPU that nobody has taken; none on the CPU, whose memory the system gives page by page.
std::optional<std::size_t> free_device_memory();

}  // namespace forge
