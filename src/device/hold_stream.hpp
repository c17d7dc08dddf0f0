#pragma once

#include <cstddef>

#include "device/stream.hpp"

namespace forge {

// The load of a collective on a rank's device, without its peers: `bytes` bytes go from one buffer of `piece` bytes to
// another, again and again, and the stream is held for `seconds` at least; by a kernel of so many blocks, on the CPU by
// the stream's thread.
struct Hold {
  int blocks;
  double seconds;
  std::byte* to;
  const std::byte* from;
  std::size_t piece, bytes;
};
void hold_stream(Stream& stream, const Hold& hold);

}  // namespace forge
