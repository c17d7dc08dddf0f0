#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sent_bytes.hpp"

namespace forge::test {

// Bytes that a group of n ranks sends, by operation.
class SentGroup {
 public:
  SentGroup(std::string name, std::vector<int> ranks) : bytes_{std::move(name), std::move(ranks), {}} {}

  std::int64_t n() const { return static_cast<std::int64_t>(bytes_.ranks.size()); }
  // Elements of one call, bytes of each, calls.
  void all_reduce(std::int64_t k, std::int64_t size, std::int64_t calls = 1) {
    bytes_.sent.all_reduce += calls * (2 * k * (n() - 1) / n()) * size;
  }
  void all_gather(std::int64_t k, std::int64_t size, std::int64_t calls = 1) {
    bytes_.sent.all_gather += calls * k * (n() - 1) * size;
  }
  // A reduce-scatter of a part of k elements, an all-to-all of k a pair, or k sent to each of the others.
  void messages(std::int64_t k, std::int64_t size, std::int64_t calls = 1) {
    bytes_.sent.messages += calls * k * (n() - 1) * size;
  }
  void send(std::int64_t k, std::int64_t size, std::int64_t calls) {
    if (n() > 1) bytes_.sent.messages += calls * k * size;
  }
  const GroupBytes& bytes() const { return bytes_; }

 private:
  GroupBytes bytes_;
};

}  // namespace forge::test
