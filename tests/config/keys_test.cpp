#include "config/keys.hpp"

#include <map>
#include <set>

#include "config/family.hpp"
#include "config/key_builder.hpp"
#include "config/router_score.hpp"
#include "config/schedule_name.hpp"
#include "config/text.hpp"
#include "config/values.hpp"
#include "support.hpp"

namespace forge {
namespace {

struct Anything {
  template <class T>
  operator T() const;
};

// How many fields an aggregate has.
template <class T, class... Fields>
constexpr int fields_of() {
  if constexpr (requires { T{Fields{}..., Anything{}}; })
    return fields_of<T, Fields..., Anything>();
  else
    return sizeof...(Fields);
}

TEST(Keys, CoverEveryFieldOfTheDeck) {
  std::map<std::string, int> keys;
  for (const auto& key : all_keys()) ++keys[key.section];
  EXPECT_EQ(keys["model"], fields_of<ModelDeck>() - 3);  // `given`, `base_vocabulary`, and `adapter`, a section
  EXPECT_EQ(keys["adapter"], fields_of<AdapterDeck>());
  EXPECT_EQ(keys["mesh"], fields_of<MeshDeck>() - 1);  // `node_ranks` is no key
  EXPECT_EQ(keys["schedule"], fields_of<ScheduleDeck>());
  EXPECT_EQ(keys["train"], fields_of<TrainDeck>() - 1);  // `fp8_carrier` is no key
  EXPECT_EQ(keys["optimizer"], fields_of<OptimizerDeck>());
  EXPECT_EQ(keys["data"], fields_of<DataDeck>());
  EXPECT_EQ(keys["checkpoint"], fields_of<CheckpointDeck>());
  EXPECT_EQ(keys["output"], fields_of<OutputDeck>());
  EXPECT_EQ(keys["machine"], fields_of<MachineDeck>());
  EXPECT_EQ(keys.size(), all_sections().size());
}

// Two keys that put their values into the same field would hide each other.
TEST(Keys, HaveAFieldOfTheirOwn) {
  std::set<std::string> names;
  for (const auto& key : all_keys()) {
    EXPECT_TRUE(names.insert(key.qualified()).second) << key.qualified();
    EXPECT_FALSE(key.doc.empty()) << key.qualified();
    Deck deck;
    if (const auto* k = std::get_if<IntegerKey>(&key.kind)) k->access.set(deck, k->access.get(deck) + 1);
    if (const auto* k = std::get_if<UnsignedKey>(&key.kind)) k->access.set(deck, 7);
    if (const auto* k = std::get_if<NumberKey>(&key.kind)) k->access.set(deck, k->access.get(deck) + 0.5);
    if (const auto* k = std::get_if<FlagKey>(&key.kind)) k->access.set(deck, !k->access.get(deck));
    if (const auto* k = std::get_if<TextKey>(&key.kind)) k->access.set(deck, "other");
    if (const auto* k = std::get_if<PathKey>(&key.kind)) k->access.set(deck, "other");
    if (const auto* k = std::get_if<PathsKey>(&key.kind)) k->access.set(deck, {"other"});
    if (const auto* k = std::get_if<TextsKey>(&key.kind)) k->access.set(deck, {"other"});
    if (const auto* k = std::get_if<SourcesKey>(&key.kind)) k->access.set(deck, {{"a", {"a.bin"}, {}, 1, 0}});
    if (const auto* k = std::get_if<PhasesKey>(&key.kind)) k->access.set(deck, {{2, 0, {{"a", 1}}}});
    if (const auto* k = std::get_if<RampKey>(&key.kind)) k->access.set(deck, {{2, 0, 1}});
    if (const auto* k = std::get_if<ValidationKey>(&key.kind)) k->access.set(deck, {{"a", {"a.bin"}, {}}});
    if (const auto* k = std::get_if<RangesKey>(&key.kind)) k->access.set(deck, {{k->least, k->least}});
    if (const auto* k = std::get_if<GroupsKey>(&key.kind)) k->access.set(deck, {{"*", 1.0, {}, {}}});
    if (const auto* k = std::get_if<IntegersKey>(&key.kind)) k->access.set(deck, {k->least});
    if (const auto* k = std::get_if<NumbersKey>(&key.kind)) k->access.set(deck, {k->least + 0.5, 1});
    if (const auto* k = std::get_if<SetKey>(&key.kind)) k->access.set(deck, 1);
    if (const auto* k = std::get_if<ChoiceKey>(&key.kind)) {
      if (k->words.size() < 2) continue;
      k->access.set(deck, k->access.get(deck) == 0 ? 1 : 0);
    }
    for (const auto& other : all_keys())
      EXPECT_EQ(is_default(other, deck), &other != &key) << key.qualified() << " changes " << other.qualified();
  }
}

template <class Keys>
concept TakesARule = requires(Keys k) {
  k.template integer<&MeshDeck::pp>("pp", OnRestart::stays, 1, 2, "", "");
};
template <class Keys>
concept TakesNoRule = requires(Keys k) {
  k.template integer<&MeshDeck::pp>("pp", 1, 2, "", "");
}
|| requires(Keys k) {
  k.template flag<&CheckpointDeck::asynchronous>("asynchronous", "");
}
|| requires(Keys k) {
  k.template choice<&MeshDeck::cp_method>("cp_method", {"ring"}, {}, "");
}
|| requires(Keys k) {
  k.add("pp", "", "", FlagKey{});
};

// A new key without a rule doesn't compile.
TEST(Keys, SayWhatARestartMayChange) {
  static_assert(TakesARule<SectionKeys<&Deck::mesh>>);
  static_assert(!TakesNoRule<SectionKeys<&Deck::mesh>> && !TakesNoRule<SectionKeys<&Deck::checkpoint>>);
  const auto stays = [](const char* section, const char* name) {
    return find_key(section, name)->on_restart == OnRestart::stays;
  };
  for (const char* name : {"layers", "width", "vocabulary", "router_score", "mtp_depth"})
    EXPECT_TRUE(stays("model", name)) << name;
  for (const char* name : {"global_batch_sequences", "sequence_tokens", "precision", "seed"})
    EXPECT_TRUE(stays("train", name)) << name;
  for (const char* name : {"steps", "microbatch_sequences", "zero_stage", "recompute"})
    EXPECT_FALSE(stays("train", name)) << name;
  EXPECT_TRUE(stays("train", "precision") && !stays("optimizer", "moments") && stays("data", "order"));
  EXPECT_FALSE(stays("optimizer", "learning_rate") || stays("data", "files"));
  const std::set<std::string> free_sections{"mesh", "schedule", "checkpoint", "output", "machine"};
  for (const Key& key : all_keys())
    EXPECT_TRUE(key.on_restart == OnRestart::may_change || !free_sections.contains(key.section)) << key.qualified();
}

// A default is legal by itself, except where the key must be given or stands for "read it from config.json".
TEST(Keys, DefaultsAreLegal) {
  for (const auto& key : all_keys()) {
    const bool derived = key.required != Required::never;
    EXPECT_EQ(range_problem(key, Deck{},
                            !derived && !std::holds_alternative<PathKey>(key.kind) &&
                                !std::holds_alternative<PathsKey>(key.kind)),
              "")
        << key.qualified();
  }
}

TEST(Keys, DefaultTextReadsBackAsTheDefault) {
  for (const auto& key : all_keys()) {
    YamlNode root;
    Report report;
    ASSERT_TRUE(parse_yaml("value: " + default_text(key), "default", root, report)) << key.qualified();
    Deck deck;
    EXPECT_EQ(read_value(key, root.entries.at(0).value, deck), "") << key.qualified();
    EXPECT_TRUE(is_default(key, deck)) << key.qualified();
  }
}

TEST(Keys, WordsFollowTheEnumerators) {
  Deck deck;
  const auto word = [&](const char* section, const char* name) { return value_text(*find_key(section, name), deck); };
  deck.model.family = Family::gpt2;
  deck.model.activation = Activation::relu2;
  deck.model.rope_scaling = RopeScaling::llama3;
  deck.model.attention = AttentionKind::mla;
  deck.model.router_score = ScoreKind::sigmoid;
  deck.model.router_group_score = GroupScoreKind::max;
  deck.model.auxiliary_loss_scope = AuxiliaryScope::microbatch;
  deck.model.capacity_drop = CapacityDrop::probability;
  deck.schedule.name = ScheduleName::zero_bubble;
  deck.train.precision = PrecisionName::fp32;
  deck.train.recompute = Recompute::selective;
  deck.optimizer.schedule = RateSchedule::inverse_sqrt;
  deck.optimizer.wsd_tail = WsdTail::sqrt;
  deck.optimizer.moments = StateType::bf16;
  deck.data.dtype = TokenType::uint32;
  deck.data.order = SampleOrder::shuffled;
  EXPECT_EQ(word("model", "family"), "gpt2");
  EXPECT_EQ(word("model", "activation"), "relu2");
  EXPECT_EQ(word("model", "rope_scaling"), "llama3");
  EXPECT_EQ(word("model", "attention"), "mla");
  EXPECT_EQ(word("model", "router_score"), "sigmoid");
  EXPECT_EQ(word("model", "router_group_score"), "max");
  EXPECT_EQ(word("model", "auxiliary_loss_scope"), "microbatch");
  EXPECT_EQ(word("model", "capacity_drop"), "probability");
  EXPECT_EQ(word("schedule", "name"), "zero_bubble");
  EXPECT_EQ(word("train", "precision"), "fp32");
  EXPECT_EQ(word("train", "recompute"), "selective");
  EXPECT_EQ(word("optimizer", "schedule"), "inverse_sqrt");
  EXPECT_EQ(word("optimizer", "wsd_tail"), "sqrt");
  EXPECT_EQ(word("optimizer", "moments"), "bf16");
  EXPECT_EQ(word("data", "dtype"), "uint32");
  EXPECT_EQ(word("data", "order"), "shuffled");
}

TEST(Keys, EditDistance) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", "abc"), 0u);
  EXPECT_EQ(edit_distance("abc", "acb"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance(std::string(1000, 'x'), "x"), 63u);
}

}  // namespace
}  // namespace forge
