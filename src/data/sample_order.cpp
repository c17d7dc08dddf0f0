#include "data/sample_order.hpp"

#include <cmath>

#include "core/error.hpp"
#include "core/random.hpp"

namespace forge {

namespace {

constexpr std::uint64_t feistel_rounds = 8;

// One pass over the a x b cells; a bijection, because each round adds to one coordinate a function of the other.
std::uint64_t shuffle_cell(std::uint64_t key, std::uint64_t a, std::uint64_t b, std::uint64_t cell) {
  std::uint64_t left = cell % a;
  std::uint64_t right = cell / a;
  for (std::uint64_t round = 0; round < feistel_rounds; ++round) {
    const bool even = round % 2 == 0;
    const auto words = philox(key, even ? right : left, round);
    const std::uint64_t draw = (std::uint64_t{words[1]} << 32) | words[0];
    if (even)
      left = (left + draw % a) % a;
    else
      right = (right + draw % b) % b;
  }
  return right * a + left;
}

}  // namespace

std::int64_t permuted(std::uint64_t key, std::int64_t count, std::int64_t index) {
  require(0 <= index && index < count, "permuted: index outside 0 … count−1");
  const auto n = static_cast<std::uint64_t>(count);
  const auto a = static_cast<std::uint64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  const std::uint64_t b = (n + a - 1) / a;
  // At most a − 1 of the cells lie at or above n, so that a walk of more than one pass is rare.
  std::uint64_t cell = static_cast<std::uint64_t>(index);
  do cell = shuffle_cell(key, a, b, cell);
  while (cell >= n);
  return static_cast<std::int64_t>(cell);
}

std::int64_t SampleSequence::at(std::int64_t place) const {
  require(count > 0 && place >= 0, "sample order: no samples, or a negative place");
  if (order == SampleOrder::sequential) return place % count;
  const auto epoch = static_cast<std::uint64_t>(place / count);
  return permuted(random_key(seed, Purpose::sample_order, epoch), count, place % count);
}

std::int64_t BatchShare::microbatches_of(std::int64_t batch) const {
  if (batch < 1 || microbatch < 1 || ranks < 1 || batch % (microbatch * ranks) != 0)
    throw BadInput("a batch of " + std::to_string(batch) + " sequences is no multiple of train.microbatch_sequences (" +
                   std::to_string(microbatch) + ") x data-parallel ranks (" + std::to_string(ranks) + ")");
  return batch / (microbatch * ranks);
}

}  // namespace forge
