#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"

namespace forge::test {

// Bytes that a rank sends in a training step, by the operations' definitions (docs/notes/bytes.md): an all-gather or a
// reduce-scatter of a part of k elements among n ranks sends k (n − 1), an all-reduce of k elements 2 k (n − 1) / n, an
// exchange its part for others.
struct SentBytes {
  std::int64_t all_reduce = 0, all_gather = 0;
  std::int64_t messages = 0;  // reduce-scatters, all-to-alls, sends

  std::int64_t total() const { return all_reduce + all_gather + messages; }
  friend bool operator==(const SentBytes&, const SentBytes&) = default;
};

// A group of ranks that send to each other.
struct GroupBytes {
  std::string name;        // as Mesh::traffic() calls it
  std::vector<int> ranks;  // of the world, in order; one: nothing is sent
  SentBytes sent;
};

// From the mesh, the model's dimensions, the batch and the tables of docs/notes/bytes.md alone: it shares no code with
// plan/traffic, the communicators' counters, or the layouts that these rest on. `deck` has passed check_deck. Outside
// of it, and refused: multi-token prediction, other splits than even, dispatch that depends on the router's choices,
// ZeRO 3 that gathers for each microbatch on several stages or with tied tables or learned positions.
std::vector<GroupBytes> sent_in_step(const Deck& deck, int rank);

}  // namespace forge::test
