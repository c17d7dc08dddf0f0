#include <limits>

#include "choice_case.hpp"

namespace forge::reference {
namespace {

// Logits of kind 0 are normal, of kind 1 have few values, of kind 2 are equal but for some, of kind 3 are far apart,
// and some of them -Inf. A stores them exactly.
template <class A>
Values logits_of(int kind, std::int64_t count, std::uint64_t key) {
  Values x = normal_values(count, key, kind == 3 ? 20 : 1.5);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (kind == 1) x[i] = std::round(2 * x[i]) / 2;
    if (kind == 2) x[i] = i % 7 == 3 ? 1.25 : i % 2 ? 0.0 : -0.0;
    if (kind == 3 && i % 5 == 1) x[i] = -std::numeric_limits<double>::infinity();
    x[i] = static_cast<double>(static_cast<A>(x[i]));
  }
  return x;
}

template <class A>
class ChooseToken : public testing::Test {};
using ChoiceTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(ChooseToken, ChoiceTypes);

#if defined(FORGE_VGPU)  // slow: of long rows few draws
constexpr int draws = 1;
constexpr std::uint64_t of_long_rows = 23;
#else
constexpr int draws = 6;
constexpr std::uint64_t of_long_rows = 3;
#endif

TYPED_TEST(ChooseToken, IsTheTokenOfSortedLogits) {
  using A = TypeParam;
  Stream stream(2);
  std::uint64_t draw = 0;
  for (const std::int64_t count : {1, 2, 50, 4096, 4097, 9001})
    for (int kind = 0; kind < 4; ++kind) {
      const Values x = logits_of<A>(kind, count, static_cast<std::uint64_t>(count));
      ChoiceCase<A> device(x);
      for (const double temperature : {0.0, 0.05, 1.0, 60.0})
        for (const std::int64_t top_k : {0, 1, 2, 300, 5000})
          for (const double top_p : {0.0, 0.1, 0.65, 0.95, 1.0})
            for (int i = 0; i < draws; ++i) {
              const auto words = philox(7, ++draw, 0);
              const TokenChoice how{temperature, top_k, top_p, uniform(words[0], words[1])};
              if (count > 100 && draw % of_long_rows != 0) continue;
              ASSERT_EQ(device.choose(stream, how), by_sorting(x, how))
                  << count << " logits of kind " << kind << ", temperature " << temperature << ", top_k " << top_k
                  << ", top_p " << top_p << ", draw " << how.uniform;
            }
    }
}

// Of a vocabulary as large as today's: many draws, none of which lies so near to the next token that sums in another
// order choose it.
TYPED_TEST(ChooseToken, IsTheTokenOfALargeVocabulary) {
  using A = TypeParam;
  Stream stream(2);
  const Values x = logits_of<A>(0, 131072, 5);
  ChoiceCase<A> device(x);
  for (std::uint64_t i = 0; i < 3 * draws; ++i) {
    const auto words = philox(11, i, 0);
    const TokenChoice how{1, i % 3 == 1 ? 50 : 0, i % 3 == 2 ? 0.95 : 1, uniform(words[0], words[1])};
    ASSERT_EQ(device.choose(stream, how), by_sorting(x, how)) << "draw " << i;
  }
}

TYPED_TEST(ChooseToken, ThreadsDoNotMatter) {
  ChoiceCase<TypeParam> device(logits_of<TypeParam>(0, 20000, 3));
  expect_same_on_any_threads([&](Stream& stream) {
    Values tokens;
    for (const double u : {0.001, 0.3, 0.9, 0.9999}) tokens.push_back(device.choose(stream, {1, 0, 1, u}));
    return tokens;
  });
}

TYPED_TEST(ChooseToken, NothingIsChosenFromNaN) {
  const double nan = std::nan(""), inf = HUGE_VAL;
  Stream stream;
  for (const Values& bad : {Values{0, nan, 1}, {nan, nan}, {inf, 0}, {-inf, -inf}, {nan, -inf}, {-inf, nan}})
    for (const double temperature : {0.0, 1.0})
      EXPECT_EQ(ChoiceCase<TypeParam>(bad).choose(stream, {temperature, 0, 1, 0.5}), -1);
  Values late(9000, 0.5);
  late[8999] = nan;
  EXPECT_EQ(ChoiceCase<TypeParam>(late).choose(stream, {1, 0, 1, 0.5}), -1);
  EXPECT_EQ(ChoiceCase<TypeParam>({-inf, 2, 1}).choose(stream, {0, 0, 1, 0.5}), 1);
}

}  // namespace
}  // namespace forge::reference
