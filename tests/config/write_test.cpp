#include "config/write_deck.hpp"

#include <cmath>

#include "config/read.hpp"
#include "support.hpp"

namespace forge {
namespace {

using Random = std::mt19937_64;

// Texts that tempt a YAML reader: every byte but zero, words with a meaning, indicators.
std::string random_text(Random& random, bool path) {
  static const std::vector<std::string> traps = {
      "null", "~",  "true", "No", "1e3", ".5",   "---",      "...",          "- a",      "a: b",        "a #b", "[x]",
      "{}",   "&a", "*a",   "!x", "%",   "@",    "`",        " a",           "a ",       "'",           "\"",   "\\",
      "a\\n", "|",  ">",    "?",  "a,b", "0x10", "\xc3\xa9", "\xe2\x80\xa8", "\xc2\x85", "\xef\xbb\xbf"};
  if (random() % 2) return traps[random() % traps.size()];
  std::string text;
  for (std::size_t i = 0, n = 1 + random() % 40; i < n; ++i) {
    const int least = path ? 0x20 : 1, byte = least + static_cast<int>(random() % static_cast<unsigned>(0x7f - least));
    text += static_cast<char>(byte);
  }
  if (random() % 8 == 0) text += std::string(3000, 'x');
  return text;
}

double random_number(const NumberKey& key, Random& random) {
  std::uniform_real_distribution<double> share(0.001, 0.999);
  if (std::isfinite(key.most)) return key.least + (key.most - key.least) * share(random);
  return key.least + std::ldexp(share(random), static_cast<int>(random() % 600) - 300);
}

struct Randomize {
  Deck& deck;
  Random& random;

  void operator()(const IntegerKey& k) const {
    const auto extent = static_cast<std::uint64_t>(k.most - k.least) + 1;
    k.access.set(deck, k.least + static_cast<std::int64_t>(random() % extent));
  }
  void operator()(const UnsignedKey& k) const { k.access.set(deck, random()); }
  void operator()(const NumberKey& k) const { k.access.set(deck, random_number(k, random)); }
  void operator()(const FlagKey& k) const { k.access.set(deck, random() % 2 == 0); }
  void operator()(const TextKey& k) const { k.access.set(deck, random_text(random, false)); }
  void operator()(const PathKey& k) const { k.access.set(deck, random_text(random, true)); }
  void operator()(const PathsKey& k) const {
    std::vector<std::string> paths;
    for (std::size_t i = 0, n = 1 + random() % 4; i < n; ++i) paths.push_back(random_text(random, true));
    k.access.set(deck, paths);
  }
  void operator()(const IntegersKey& k) const {
    std::vector<std::int64_t> values;
    for (std::int64_t i = k.least; i <= k.most && values.size() < 5; i += 1 + static_cast<std::int64_t>(random() % 9))
      if (random() % 2) values.push_back(i);
    k.access.set(deck, values);
  }
  void operator()(const NumbersKey& k) const {
    std::vector<double> values;
    for (std::size_t i = 0, n = random() % 5; i < n; ++i)
      values.push_back(k.least + static_cast<double>(1 + random() % 1000) / 7);
    k.access.set(deck, values);
  }
  void operator()(const SourcesKey& k) const {
    std::vector<SourceDeck> sources;
    const bool weighed = random() % 2 == 0;
    for (std::size_t i = 0, n = 1 + random() % 4; i < n; ++i) {
      SourceDeck s{"s" + std::to_string(i), {random_text(random, true), random_text(random, true)}, {}, -1, 0};
      if (random() % 2) s.mask_files = {random_text(random, true), random_text(random, true)};
      if (weighed)
        s.weight = std::ldexp(1 + static_cast<double>(random() % 1000), static_cast<int>(random() % 40) - 20);
      s.max_epochs = static_cast<std::int64_t>(random() % 3);
      sources.push_back(s);
    }
    k.access.set(deck, sources);
  }
  void operator()(const PhasesKey& k) const {
    std::vector<PhaseDeck> phases;
    for (std::size_t i = 0, n = 1 + random() % 3; i < n; ++i) {
      const auto first = static_cast<std::int64_t>(2 + random() % 1000000);
      phases.push_back(
          {i % 2 ? 0 : first, i % 2 ? first : 0, {{"s0", 0.25 * static_cast<double>(1 + random() % 9)}, {"x", 0}}});
      if (random() % 2) phases.back().sequence_tokens = static_cast<std::int64_t>(1 + random() % 4096);
      if (random() % 2) phases.back().rate = 0.1 * static_cast<double>(random() % 30);
      if (phases.back().rate && random() % 2) phases.back().weights.clear();
    }
    k.access.set(deck, phases);
  }
  void operator()(const RampKey& k) const {
    std::vector<RampDeck> ramp;
    for (std::size_t i = 0, n = 1 + random() % 3; i < n; ++i) {
      const auto first = static_cast<std::int64_t>(2 + random() % 1000000);
      ramp.push_back({i % 2 ? 0 : first, i % 2 ? first : 0, static_cast<std::int64_t>(1 + random() % 512)});
    }
    k.access.set(deck, ramp);
  }
  void operator()(const ValidationKey& k) const {
    std::vector<ValidationDeck> sets;
    for (std::size_t i = 0, n = 1 + random() % 4; i < n; ++i) {
      ValidationDeck& set =
          sets.emplace_back(ValidationDeck{"v." + std::to_string(i), {random_text(random, true)}, {}});
      if (random() % 2) set.mask_files = {random_text(random, true)};
      if (random() % 2) set.sequences = static_cast<std::int64_t>(random() % 99);
    }
    k.access.set(deck, sets);
  }
  void operator()(const RangesKey& k) const {
    std::vector<NumberRange> ranges;
    std::int64_t at = k.least;
    for (std::size_t i = 0, n = 1 + random() % 4; i < n; ++i) {
      const auto length = static_cast<std::int64_t>(random() % 5);
      ranges.push_back({at, at + length});
      at += length + 1 + static_cast<std::int64_t>(random() % 5);
    }
    k.access.set(deck, ranges);
  }
  void operator()(const GroupsKey& k) const {
    std::vector<OptimizerGroup> groups;
    for (std::size_t i = 0, n = 1 + random() % 3; i < n; ++i) {
      OptimizerGroup& group = groups.emplace_back(OptimizerGroup{i % 2 ? "*.norm?" : "a: \"b\"", {}, {}, {}});
      if (random() % 2) group.learning_rate = 1e-4 * static_cast<double>(random() % 97);
      if (random() % 2) group.weight_decay = 0.1 * static_cast<double>(random() % 7);
      if (random() % 2) group.optimizer = static_cast<OptimizerName>(random() % 3);
      if (group == OptimizerGroup{group.pattern, {}, {}, {}}) group.weight_decay = 0;
    }
    k.access.set(deck, groups);
  }
  void operator()(const SetKey& k) const {
    const std::size_t words = k.words.size(), drawn = random() % (words + 4);
    k.access.set(deck,
                 drawn < words ? k.words[drawn].second : static_cast<unsigned>(random() % (1U << k.names.size())));
  }
  void operator()(const ChoiceKey& k) const { k.access.set(deck, static_cast<int>(random() % k.words.size())); }
};

TEST(Write, RandomDecksReadBackExactly) {
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    Deck deck;
    for (const auto& key : all_keys())
      if (i == 0 || random() % 4 != 0 || key.required != Required::never) std::visit(Randomize{deck, random}, key.kind);
    const std::string text = write_deck(deck);
    Deck back;
    ASSERT_NO_THROW(back = read_deck(text, "written", {})) << text;
    ASSERT_EQ(test::difference(deck, back), "") << text;
    ASSERT_EQ(write_deck(back), text);
  }
}

TEST(Write, DefaultDeckReadsBack) {
  Deck deck;
  deck.model.hf = "dir";
  EXPECT_EQ(test::difference(read_deck(write_deck(deck), "written", {}, Needs::model_only), deck), "");
}

TEST(Write, SectionsComeInTheirOrder) {
  const std::string text = write_deck(Deck{});
  std::size_t last = 0;
  for (const char* section : {"model:\n", "mesh:\n", "schedule:\n", "train:\n", "optimizer:\n", "data:\n",
                              "checkpoint:\n", "output:\n", "machine:\n"}) {
    const std::size_t at = text.find(section);
    ASSERT_NE(at, std::string::npos) << section;
    EXPECT_GE(at, last) << section;
    last = at;
  }
}

TEST(Write, HelpNamesEveryKey) {
  const std::string all = help_text();
  for (const auto& key : all_keys()) {
    EXPECT_NE(all.find("  " + key.qualified() + " "), std::string::npos) << key.qualified();
    EXPECT_NE(help_text(key.section).find(key.qualified()), std::string::npos) << key.qualified();
  }
  EXPECT_EQ(help_text("mesh").find("train.steps"), std::string::npos);
  EXPECT_EQ(help_text("meshes"), "");
  EXPECT_NE(help_of_keys("", "learning_rate").find("optimizer.learning_rate"), std::string::npos);
  EXPECT_EQ(help_of_keys("mesh", "learning_rate"), "");
}

// docs/inputs.md is the table's. FORGE_UPDATE_DOCS=1 writes it anew.
TEST(Write, InputsMarkdownIsCurrent) {
  const std::string path = std::string(FORGE_SOURCE_DIR) + "/docs/inputs.md";
  if (std::getenv("FORGE_UPDATE_DOCS")) std::ofstream(path, std::ios::binary) << inputs_markdown();
  EXPECT_TRUE(test::read_file(path) == inputs_markdown())
      << path << " is stale; write it with: forge help --markdown > docs/inputs.md";
}

}  // namespace
}  // namespace forge
