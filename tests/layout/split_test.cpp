#include "layout/split.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "core/error.hpp"

namespace forge {
namespace {

void expect_whole(const std::vector<StageContent>& stages, int layers, int mtp) {
  int next = 0, multi = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    EXPECT_EQ(stages[s].embedding, s == 0);
    EXPECT_EQ(stages[s].head, s + 1 == stages.size());
    EXPECT_EQ(stages[s].first_layer, next);
    EXPECT_GE(stages[s].layers, 0);
    next += stages[s].layers;
    multi += stages[s].mtp_layers;
  }
  EXPECT_EQ(next, layers);
  EXPECT_EQ(multi, mtp);
}

TEST(Split, EvenDiffersByAtMostOne) {
  for (int layers = 0; layers <= 40; ++layers)
    for (int stages = 1; stages <= 16; ++stages) {
      const auto split = split_layers("even", layers, stages, 2);
      ASSERT_EQ(static_cast<int>(split.size()), stages);
      expect_whole(split, layers, 2);
      for (int s = 0; s < stages; ++s)
        EXPECT_EQ(split[static_cast<std::size_t>(s)].layers, layers / stages + (s < layers % stages));
    }
}

// The largest stage, with embedding, head and multi-token layers as layers, is as small as any split allows.
TEST(Split, BalancedCountsTheEnds) {
  for (int layers = 0; layers <= 40; ++layers)
    for (int stages = 1; stages <= 16; ++stages)
      for (const int mtp : {0, 2}) {
        const auto split = split_layers("balanced", layers, stages, mtp);
        expect_whole(split, layers, mtp);
        int largest = 0;
        for (const StageContent& stage : split)
          largest = std::max(largest, stage.layers + stage.embedding + stage.head + stage.mtp_layers);
        const int total = layers + 2 + mtp, even = (total + stages - 1) / stages;
        // The last stage is never smaller than its head; the rest then shares the other stages.
        const int others = stages > 1 ? (layers + 1 + stages - 2) / (stages - 1) : 0;
        EXPECT_EQ(largest, even >= 1 + mtp ? even : std::max(1 + mtp, others)) << layers << " " << stages << " " << mtp;
      }
  const auto split = split_layers("balanced", 6, 4);
  EXPECT_EQ(split[0].layers, 1);
  EXPECT_EQ(split[1].layers, 2);
  EXPECT_EQ(split[3].layers, 1);
}

TEST(Split, LayoutStrings) {
  const auto deepseek = split_layers("Et*3|(tt|)*29m|L", 61, 32, 1);
  expect_whole(deepseek, 61, 1);
  EXPECT_EQ(deepseek[0], (StageContent{true, 0, 3, 0, false}));
  EXPECT_EQ(deepseek[1], (StageContent{false, 3, 2, 0, false}));
  EXPECT_EQ(deepseek[29], (StageContent{false, 59, 2, 0, false}));
  EXPECT_EQ(deepseek[30], (StageContent{false, 61, 0, 1, false}));
  EXPECT_EQ(deepseek[31], (StageContent{false, 61, 0, 0, true, 2}));

  EXPECT_TRUE(deepseek[30].final_norm());
  EXPECT_FALSE(deepseek[31].final_norm());
  EXPECT_EQ(deepseek[30].layer(0), 61);

  // States that pass a stage, and the numbers of its layers.
  const auto apart = split_layers("Etttm|m||mL", 3, 4, 3);
  expect_whole(apart, 3, 3);
  for (const auto& [stage, in, out, first] : {std::array{0, 1, 2, 0}, {1, 2, 3, 4}, {2, 3, 3, 5}, {3, 3, 4, 5}}) {
    const StageContent& content = apart[static_cast<std::size_t>(stage)];
    EXPECT_EQ(content.states_in, in) << stage;
    EXPECT_EQ(content.states_out(), out) << stage;
    EXPECT_EQ(content.layer(0), first) << stage;
    EXPECT_EQ(content.final_norm(), stage == 0) << stage;
  }
  EXPECT_EQ(apart[0].layer(3), 3);

  expect_whole(split_layers("EL", 0, 1), 0, 0);
  expect_whole(split_layers("E | tt, tt | | L", 4, 4), 4, 0);
  expect_whole(split_layers("E((t|)*2t)*2L", 6, 5), 6, 0);
  expect_whole(split_layers("Et*0tL", 1, 1), 1, 0);
}

std::string refusal(const std::string& split, int layers, int stages, int mtp = 0) {
  try {
    split_layers(split, layers, stages, mtp);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST(Split, RefusalsNamePositionAndRule) {
  const auto expect = [](const std::string& split, int layers, int stages, const char* position, const char* rule) {
    const std::string text = refusal(split, layers, stages);
    EXPECT_NE(text.find("schedule.split '" + split + "', position " + position + ":"), std::string::npos) << text;
    EXPECT_NE(text.find(rule), std::string::npos) << text;
  };
  expect("evne", 4, 2, "1", "legal are even, balanced");
  expect("Ett|ttL", 3, 2, "6", "this is layer 4, but the model has 3");
  expect("Ett|ttL", 5, 2, "8", "ends with 4 layers t");
  expect("Ett|tt|L", 4, 2, "7", "stage 3 begins");
  expect("EttttL", 4, 2, "7", "ends with 1 stages");
  expect("tt|ttL", 4, 2, "1", "embedding E must be the first");
  expect("tE|L", 1, 2, "1", "embedding E must be the first");
  expect("Et|EtL", 2, 2, "4", "embedding E must be the first");
  expect("|EtL", 1, 2, "2", "embedding E must be the first");
  expect("EtL|t", 2, 2, "5", "nothing may follow the head");
  expect("EtL|", 1, 2, "5", "the last stage must end with the head");
  expect("Et|t", 2, 2, "5", "the last stage must end with the head");
  expect("Et|(tL", 2, 2, "4", "'(' without ')'");
  expect("Et|t)L", 2, 2, "5", "')' without '('");
  expect("Et*xL", 2, 1, "3", "a whole number");
  expect("Et*-1L", 2, 1, "3", "a whole number");
  expect("Et*99999999999L", 2, 1, "3", "a whole number");
  expect("((((((((((tL))))))))))", 2, 1, "9", "nested");
  expect("E((t*60000)*60000)*60000L", 2, 1, "3", "longer than any model");
  expect("EtmL", 1, 1, "3", "multi-token layer 1, but the model has 0");
  EXPECT_NE(refusal("EmtL", 1, 1, 1).find("position 3: a layer t behind"), std::string::npos);
  EXPECT_NE(refusal("", 1, 1).find("position 1"), std::string::npos);
}

TEST(Split, RandomStringsAreWholeOrRefused) {
  std::mt19937 random(7);
  const std::string letters = "EtmL|()*0123 ,x";
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = "Et*2|(t|)*2mL";
    for (int change = 0; change < 1 + round % 3; ++change) {
      const std::size_t i = random() % text.size();
      if (random() % 2)
        text[i] = letters[random() % letters.size()];
      else
        text.insert(i, 1, letters[random() % letters.size()]);
    }
    try {
      expect_whole(split_layers(text, 4, 4, 1), 4, 1);
    } catch (const BadInput&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace forge
