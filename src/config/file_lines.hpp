#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "config/file_handle.hpp"

namespace forge {

// Calls f(line, offset) for each line that has an end, without that end; of a line beyond 64 MiB with its beginning.
// Returns where the last end was: the bytes behind it are a line without one. Throws as FileHandle::read_at.
template <class F>
std::uint64_t for_each_line(const FileHandle& file, F f) {
  constexpr std::size_t most_at_once = std::size_t{1} << 20, most_line = std::size_t{64} << 20;
  const std::uint64_t size = file.size();
  std::string line, block;
  std::uint64_t begin = 0;
  for (std::uint64_t at = 0; at < size; at += block.size()) {
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(size - at, most_at_once)));
    file.read_at(at, block.data(), block.size());
    for (std::size_t i = 0; i < block.size();) {
      const std::size_t end = std::min(block.find('\n', i), block.size());
      if (line.size() < most_line) line.append(block, i, end - i);
      if (end == block.size()) break;
      f(line, begin);
      line.clear();
      i = end + 1;
      begin = at + i;
    }
  }
  return begin;
}

}  // namespace forge
