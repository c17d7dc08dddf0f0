#pragma once

#include <cstdint>

#include "config/batch_ramp.hpp"
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

// Which places of the run a data-parallel rank reads: step s (from 1) takes the G_s places behind those of the steps
// before, P_s … P_s + G_s − 1 (config/batch_ramp.hpp), cut into microbatches of b consecutive places, which are dealt
// to the n ranks in turn. So microbatch m of rank d holds
//   P_s + (m·n + d)·b … + b − 1.
struct BatchShare {
  BatchSizes batches;           // G_s
  std::int64_t microbatch = 1;  // b
  std::int64_t ranks = 1;       // n
  std::int64_t rank = 0;        // d

  // A of a step; throws BadInput unless G is a multiple of b·n.
  std::int64_t microbatches(std::int64_t step = 1) const { return microbatches_of(batches.of(step)); }
  // The most microbatches of any step.
  std::int64_t most_microbatches() const { return microbatches_of(batches.largest()); }
  // Place of sequence `row` (0 … A·b−1) of this rank's share of step s.
  std::int64_t place(std::int64_t step, std::int64_t row) const {
    return batches.before(step) + (row / microbatch * ranks + rank) * microbatch + row % microbatch;
  }

 private:
  std::int64_t microbatches_of(std::int64_t batch) const;
};

}  // namespace forge
