#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace forge {

// Every buffer of an arena starts at a multiple of this, for vector loads, cuBLAS and NCCL.
inline constexpr std::size_t alignment_bytes = 256;

constexpr std::size_t align_up(std::size_t bytes) {
  return (bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
}

// The output of printf, as a string.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);
// "1.50 GiB", "12 B": for people.
std::string format_bytes(std::uint64_t bytes);
// "4.7 M", "1.2 B", "812": parameters and tokens for people, powers of 1000.
std::string format_count(double count);
// "4.7 M", "1.2 G", "812": FLOP for people, powers of 1000.
std::string format_flops(double flops);
// "1 rank", "2 ranks"; `several` where it isn't `one` with an s.
std::string counted(std::int64_t count, const std::string& one, const std::string& several = "");
// "1h02m", "3m20s", "12.5s".
std::string format_seconds(double seconds);
// Shortest decimal text that reads back as the same number; "nan" and "inf" as such.
std::string format_exact(double value);

}  // namespace forge
