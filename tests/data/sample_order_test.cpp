#include "data/sample_order.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"

namespace forge {
namespace {

std::vector<std::int64_t> permutation(std::uint64_t key, std::int64_t count) {
  std::vector<std::int64_t> image;
  for (std::int64_t i = 0; i < count; ++i) image.push_back(permuted(key, count, i));
  return image;
}

TEST(SampleOrder, IsABijectionForEverySize) {
  std::vector<std::int64_t> sizes{997, 1024, 4096, 65537, 100000};
  for (std::int64_t n = 1; n <= 130; ++n) sizes.push_back(n);
  for (const std::int64_t n : sizes)
    for (const std::uint64_t key : {0ull, 1ull, ~0ull}) {
      std::vector<bool> seen(static_cast<std::size_t>(n));
      for (const std::int64_t image : permutation(key, n)) {
        ASSERT_TRUE(0 <= image && image < n);
        ASSERT_FALSE(seen[static_cast<std::size_t>(image)]) << "size " << n;
        seen[static_cast<std::size_t>(image)] = true;
      }
    }
}

TEST(SampleOrder, StaysInRangeForHugeSets) {
  for (const std::int64_t n : {(std::int64_t{1} << 40) + 7, (std::int64_t{1} << 52) - 1}) {
    std::set<std::int64_t> images;
    for (std::int64_t i = 0; i < 1000; ++i) {
      const std::int64_t image = permuted(3, n, n - 1 - i);
      ASSERT_TRUE(0 <= image && image < n);
      images.insert(image);
    }
    EXPECT_EQ(images.size(), 1000u);
  }
}

TEST(SampleOrder, RefusesAnIndexOutsideTheSet) {
  EXPECT_THROW(permuted(1, 5, 5), Error);
  EXPECT_THROW(permuted(1, 5, -1), Error);
  EXPECT_THROW(permuted(1, 0, 0), Error);
}

// Over many keys, each element is equally likely at each place. A count is binomial with n trials of probability
// 1/size: with N cells looked at, all of them lie within sqrt(2 ln(2N/p)) standard deviations but for a chance of p =
// 1e-6. (The keys are fixed, so the test always gives the same answer.)
TEST(SampleOrder, EveryElementIsEquallyLikelyAtEveryPlace) {
  for (const std::int64_t size : {2, 3, 5, 7, 12, 33}) {
    const int keys = 6000;
    const auto cells = static_cast<std::size_t>(size * size);
    std::vector<int> counts(cells);
    for (int key = 0; key < keys; ++key)
      for (std::int64_t i = 0; i < size; ++i)
        ++counts[static_cast<std::size_t>(i * size + permuted(mix(0, static_cast<std::uint64_t>(key)), size, i))];
    const double p = 1.0 / static_cast<double>(size);
    const double deviation = std::sqrt(keys * p * (1 - p));
    const double bound = std::sqrt(2 * std::log(2 * static_cast<double>(cells) / 1e-6)) * deviation;
    for (const int count : counts) EXPECT_LE(std::abs(count - keys * p), bound) << "size " << size;
  }
}

TEST(SampleOrder, EveryPermutationOfThreeAndFourHappens) {
  std::map<std::vector<std::int64_t>, int> three, four;
  for (std::uint64_t key = 0; key < 3000; ++key) {
    ++three[permutation(mix(1, key), 3)];
    ++four[permutation(mix(1, key), 4)];
  }
  EXPECT_EQ(three.size(), 6u);
  EXPECT_EQ(four.size(), 24u);
}

TEST(SampleSequence, SequentialOrderWrapsToTheFirstSample) {
  const SampleSequence sequence{SampleOrder::sequential, 5, 7};
  for (std::int64_t place = 0; place < 30; ++place) EXPECT_EQ(sequence.at(place), place % 7);
}

TEST(SampleSequence, ShuffledOrderVisitsEachSampleOncePerEpoch) {
  const std::int64_t count = 101;
  const SampleSequence sequence{SampleOrder::shuffled, 5, count};
  const SampleSequence again{SampleOrder::shuffled, 5, count};
  const SampleSequence other{SampleOrder::shuffled, 6, count};
  std::vector<std::vector<std::int64_t>> epochs(3), others(3);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t sample = sequence.at(epoch * count + i);
      EXPECT_EQ(sample, again.at(epoch * count + i));
      epochs[static_cast<std::size_t>(epoch)].push_back(sample);
      others[static_cast<std::size_t>(epoch)].push_back(other.at(epoch * count + i));
      seen.insert(sample);
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], others[0]);
}

TEST(BatchShare, RanksTogetherReadTheStepInOrder) {
  // G = 24 over 1, 2, 3 and 4 ranks and several microbatches: ordered by (microbatch, rank), the places are
  // consecutive.
  for (const std::int64_t ranks : {1, 2, 3, 4})
    for (const std::int64_t microbatch : {1, 2}) {
      std::vector<std::int64_t> places;
      const std::int64_t count = BatchShare{24, microbatch, ranks, 0}.microbatches();
      EXPECT_EQ(count * microbatch * ranks, 24);
      for (std::int64_t m = 0; m < count; ++m)
        for (std::int64_t rank = 0; rank < ranks; ++rank)
          for (std::int64_t b = 0; b < microbatch; ++b)
            places.push_back(BatchShare{24, microbatch, ranks, rank}.place(3, m * microbatch + b));
      for (std::size_t i = 0; i < places.size(); ++i) EXPECT_EQ(places[i], 48 + static_cast<std::int64_t>(i));
    }
}

// With other batches in other steps: what all ranks read in turn are the places of the run, each once.
TEST(BatchShare, RampedStepsReadAllPlacesInOrder) {
  BatchSizes batches(24);
  batches.change(1, 8);
  batches.change(3, 16);
  batches.change(4, 24);
  for (const std::int64_t ranks : {1, 2, 4}) {
    std::int64_t next = 0;
    for (std::int64_t step = 1; step <= 6; ++step) {
      const std::int64_t count = BatchShare{batches, 2, ranks, 0}.microbatches(step);
      EXPECT_EQ(count * 2 * ranks, batches.of(step));
      for (std::int64_t m = 0; m < count; ++m)
        for (std::int64_t rank = 0; rank < ranks; ++rank)
          for (std::int64_t b = 0; b < 2; ++b)
            EXPECT_EQ((BatchShare{batches, 2, ranks, rank}.place(step, m * 2 + b)), next++);
    }
    EXPECT_EQ(next, batches.before(7));
    EXPECT_EQ((BatchShare{batches, 2, ranks, 0}.most_microbatches()), 12 / ranks);
  }
}

TEST(BatchShare, RefusesABatchThatCannotBeDealt) {
  EXPECT_THROW((BatchShare{10, 2, 3, 0}.microbatches()), BadInput);
  EXPECT_THROW((BatchShare{0, 1, 1, 0}.microbatches()), BadInput);
}

}  // namespace
}  // namespace forge
