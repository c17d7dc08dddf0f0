#pragma once

#include <cstdint>

#include "config/deck.hpp"

namespace forge {

// Image of `index` under a pseudo-random permutation of 0 … count−1 that belongs to `key`: a Feistel network over
// a x b >= count cells, walked until it falls below count (Black & Rogaway, "Ciphers with arbitrary finite domains",
// CT-RSA 2002). Takes constant time and no memory on average. Needs 0 <= index < count.
std::int64_t permuted(std::uint64_t key, std::int64_t count, std::int64_t index);

// Which sample stands at which place of a run: a pure function of seed and place, so that a run can go on anywhere.
struct SampleSequence {
  SampleOrder order = SampleOrder::sequential;
  std::uint64_t seed = 0;
  std::int64_t count = 0;  // samples in the set

  // Sample at place 0, 1, …: sequential order wraps around; shuffled order is another permutation in each epoch.
  std::int64_t at(std::int64_t place) const;
};

// Which places of the run a data-parallel rank reads: step s (from 1) takes places (s−1)·G … s·G−1, cut into
// microbatches of b consecutive places, which are dealt to the n ranks in turn. So microbatch m of rank d holds
//   (s−1)·G + (m·n + d)·b … + b − 1.
struct BatchShare {
  std::int64_t global_batch = 1;  // G
  std::int64_t microbatch = 1;    // b
  std::int64_t ranks = 1;         // n
  std::int64_t rank = 0;          // d

  // A; throws BadInput unless G is a multiple of b·n.
  std::int64_t microbatches() const;
  // Place of sequence `row` (0 … A·b−1) of this rank's share of step s.
  std::int64_t place(std::int64_t step, std::int64_t row) const {
    return (step - 1) * global_batch + (row / microbatch * ranks + rank) * microbatch + row % microbatch;
  }
};

}  // namespace forge
