#include "data/mixture.hpp"

#include <numeric>

#include "core/random.hpp"
#include "data/loader.hpp"
#include "files.hpp"

namespace forge {
namespace {

using namespace test;

std::vector<std::string> names(std::size_t n) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back("s" + std::to_string(i));
  return all;
}

std::vector<std::int64_t> whole(const std::vector<double>& weights) {
  return whole_weights(weights, names(weights.size()));
}

TEST(Mixture, WeightsBecomeWholeProportions) {
  using W = std::vector<std::int64_t>;
  EXPECT_EQ(whole({2, 1}), (W{2, 1}));
  EXPECT_EQ(whole({0.7, 0.3}), (W{7, 3}));
  EXPECT_EQ(whole({0.125, 0.5, 0, 0.375}), (W{1, 4, 0, 3}));
  EXPECT_EQ(whole({6e6, 2e6}), (W{3, 1}));
  EXPECT_EQ(whole({5}), (W{1}));
  // Largest remainder of 65,536, ties to the first.
  EXPECT_EQ(whole({1.0 / 3, 2.0 / 3}), (W{21845, 43691}));
  const W many = whole({3.14159265358979, 2.71828182845905, 1.41421356237310});
  EXPECT_EQ(std::accumulate(many.begin(), many.end(), std::int64_t{0}), most_period);
  const double sum = 3.14159265358979 + 2.71828182845905 + 1.41421356237310;
  EXPECT_LT(std::abs(static_cast<double>(many[1]) - 2.71828182845905 / sum * 65536), 1);
  EXPECT_EQ(whole({65535, 1}), (W{65535, 1}));
  expect_mentions(refusal([] { whole({1e9 + 1, 1}); }), {"s1", "65536", "temperature"});
  expect_mentions(refusal([] { whole({1e308, 1.7e308}); }), {"sum is inf", "smaller weights"});
}

// Among the first t places of any phase each source stands weight · t / Σ weights times, to within less than one.
TEST(Mixture, CountsDeviateByLessThanOneAtEveryPlace) {
  std::uint64_t state = 1;
  std::vector<std::vector<std::int64_t>> cases{{1}, {2, 1}, {7, 3}, {0, 5, 0, 1}, {65535, 1}, {1, 65535}};
  for (int i = 0; i < 60; ++i) {
    std::vector<std::int64_t> weights;
    const std::size_t n = 2 + (state = mix(state, 1)) % (i < 50 ? 9 : 100);
    for (std::size_t s = 0; s < n; ++s) weights.push_back(static_cast<std::int64_t>((state = mix(state, 2)) % 300));
    weights[0] += 1;
    cases.push_back(weights);
  }
  for (const auto& weights : cases) {
    const std::int64_t W = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
    const auto places = chairman_assignment(weights);
    ASSERT_EQ(static_cast<std::int64_t>(places.size()), W);
    std::vector<std::int64_t> given(weights.size(), 0);
    for (std::int64_t t = 1; t <= W; ++t) {
      const PeriodPlace place = places[static_cast<std::size_t>(t - 1)];
      ASSERT_EQ(place.index, given[place.source]);
      ++given[place.source];
      for (std::size_t s = 0; s < weights.size(); ++s)
        ASSERT_LT(std::abs(given[s] * W - weights[s] * t), W) << "source " << s << " at " << t;
    }
    EXPECT_EQ(given, weights);
  }
}

TEST(Mixture, PhasesCountOnWhereTheLastOneEnded) {
  const MixtureOrder order({{0, {2, 1, 0}}, {1000, {0, 1, 3}}, {1001, {1, 1, 1}}, {5003, {5, 0, 2}}});
  std::vector<std::int64_t> given(3, 0);
  for (std::int64_t place = 0; place < 12000; ++place) {
    for (std::size_t s = 0; s < 3; ++s) ASSERT_EQ(order.drawn(s, place), given[s]) << place;
    const MixtureOrder::Draw draw = order.at(place);
    ASSERT_EQ(draw.index, given[draw.source]) << place;
    ++given[draw.source];
  }
}

constexpr std::int64_t T = 7, V = 60000;

// Three sources of 5, 17 and 40 samples whose tokens tell them apart.
struct Sources {
  Directory dir;
  std::vector<TokenSet> sets;
  Sources() {
    std::uint16_t first = 0;
    for (const std::size_t samples : {5ul, 17ul, 40ul}) {
      auto tokens = counting<std::uint16_t>(samples * T + 1);
      for (auto& token : tokens) token = static_cast<std::uint16_t>(token + first);
      first = static_cast<std::uint16_t>(first + 1000);
      const std::string path = dir / (std::to_string(samples) + ".bin");
      write_tokens(path, tokens);
      sets.emplace_back(TokenSetOptions{{path}, TokenType::uint16, T, V});
    }
  }
  SampleStream stream(std::vector<std::int64_t> most = {}) const {
    std::vector<DataSource> all;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      all.push_back({"s" + std::to_string(i), &sets[i], {SampleOrder::shuffled, mix(9, i), sets[i].samples()}});
      if (!most.empty()) all.back().most_samples = most[i];
    }
    return SampleStream(all, {{0, {3, 2, 5}}, {24 * 12, {1, 0, 6}}});
  }
};

// Counts are exact at every step of 10,000, and in each epoch a source gives each of its samples once.
TEST(Mixture, CountsAreExactAtEveryStep) {
  const Sources sources;
  const SampleStream stream = sources.stream();
  const std::int64_t G = 12, steps = 10000;
  std::vector<std::int64_t> given(3, 0);
  std::vector<std::vector<std::int64_t>> seen(3);
  for (std::int64_t s = 1; s <= steps; ++s) {
    for (std::int64_t place = (s - 1) * G; place < s * G; ++place) {
      const SampleStream::Place found = stream.at(place);
      ++given[found.source];
      seen[found.source].push_back(found.sample);
    }
    const std::int64_t first = std::min(s * G, std::int64_t{24 * 12}), second = s * G - first;
    const double expected[3] = {0.3 * first + second / 7.0, 0.2 * first, 0.5 * first + second * 6 / 7.0};
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(stream.drawn(i, s * G), given[i]);
      ASSERT_LT(std::abs(static_cast<double>(given[i]) - expected[i]), second > 0 ? 2 : 1) << s;
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const auto n = sources.sets[i].samples();
    for (std::size_t first = 0; first + static_cast<std::size_t>(n) <= seen[i].size();
         first += static_cast<std::size_t>(n)) {
      std::vector<bool> there(static_cast<std::size_t>(n), false);
      for (std::int64_t j = 0; j < n; ++j)
        there[static_cast<std::size_t>(seen[i][first + static_cast<std::size_t>(j)])] = true;
      ASSERT_EQ(std::count(there.begin(), there.end(), true), n);
    }
  }
}

// 50 steps, across a phase's edge at step 25 and the ends of all sources: whoever begins at a step, on any number of
// ranks, reads what one rank read that never stopped.
TEST(Mixture, ARestartAtAnyStepOnAnyLayoutReadsTheSameSamples) {
  const Sources sources;
  const SampleStream stream = sources.stream();
  const std::int64_t G = 12, steps = 50;
  std::vector<std::vector<std::vector<std::int32_t>>> whole;  // by step and place: tokens, and the source
  Loader one(stream, {G, 1, 1, 0}, 1, steps, RowShare{.sources = true});
  for (std::int64_t s = 1; s <= steps; ++s) {
    const HostBatch& batch = one.next();
    whole.emplace_back();
    std::int64_t labels = 0;
    for (const std::int64_t n : batch.source_labels) labels += n;
    EXPECT_EQ(labels, batch.label_count);
    for (std::int64_t row = 0; row < G; ++row) {
      const auto begin = static_cast<std::ptrdiff_t>(row * T);
      whole.back().emplace_back(batch.tokens.begin() + begin, batch.tokens.begin() + begin + T);
      whole.back().back().push_back(batch.sources[static_cast<std::size_t>(begin)]);
      EXPECT_EQ(batch.tokens[static_cast<std::size_t>(begin)] / 1000, batch.sources[static_cast<std::size_t>(begin)]);
    }
  }
  const std::pair<std::int64_t, std::int64_t> layouts[] = {{1, 3}, {2, 1}, {3, 2}, {4, 3}, {6, 1}, {12, 1}};
  for (std::int64_t s = 1; s <= steps; ++s) {
    const auto [ranks, b] = layouts[s % 6];
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const BatchShare share{G, b, ranks, rank};
      Loader part(sources.stream(), share, s, std::min(s + 1, steps), RowShare{.sources = true});
      for (std::int64_t at = s; at <= std::min(s + 1, steps); ++at) {
        const HostBatch& batch = part.next();
        for (std::int64_t row = 0; row < batch.sequences; ++row) {
          const auto begin = static_cast<std::ptrdiff_t>(row * T);
          std::vector<std::int32_t> tokens(batch.tokens.begin() + begin, batch.tokens.begin() + begin + T);
          tokens.push_back(batch.sources[static_cast<std::size_t>(begin)]);
          const auto place = share.place(at, row) - (at - 1) * G;
          ASSERT_EQ(tokens, whole[static_cast<std::size_t>(at - 1)][static_cast<std::size_t>(place)]) << at;
        }
      }
    }
  }
}

TEST(Mixture, ASourceThatEndsNamesTheStep) {
  const Sources sources;
  // s0 gives 3 of 10 samples: in 12 places a step, more than 10 after step 3 (36 places: 11).
  expect_mentions(refusal([&] {
                    sources.stream({10, 1000000, 1000000}).check_ends(50, 12);
                  }),
                  {"data.sources: s0 ends at step 3 of 50", "10 samples", "5 in an epoch"});
  EXPECT_NO_THROW(sources.stream({10, 1000000, 1000000}).check_ends(2, 12));
}

}  // namespace
}  // namespace forge
