#include "config/fp8_recipe.hpp"
#include "config/optimizer_table.hpp"
#include "small_deck.hpp"

// What decks say of mixtures, documents and packing.

namespace forge {
namespace {

using test::checked;
using test::expect_refused;

TEST(Check, Mixtures) {
  const auto mixed = [](Deck& d) {
    d.data.files.clear();
    d.data.sources = {{"a", {"a.bin"}, {}, 3, 0}, {"b", {"b.bin"}, {}, 1, 2}};
  };
  const auto refused = [&](auto change, std::initializer_list<const char*> words) {
    expect_refused([&](Deck& d) { mixed(d), change(d); }, words);
  };
  EXPECT_NO_THROW(checked([&](Deck& d) {
    mixed(d);
    d.data.phases = {{5, 0, {{"b", 1}}}, {0, std::int64_t{1} << 40, {{"a", 1}}}};
  }));
  refused([](Deck& d) { d.data.files = {"c.bin"}; }, {"data.files and data.sources are both given"});
  refused([](Deck& d) { d.data.sources[1].name = "a"; }, {"data.sources [1].name = a", "another source"});
  refused([](Deck& d) { d.data.sources[0].name = "a b"; }, {"data.sources [0].name", "letters, digits"});
  refused([](Deck& d) { d.data.sources[0].files = {}; }, {"[0].files = []", "at least one path"});
  refused([](Deck& d) { d.data.sources[0].mask_files = {"x", "y"}; }, {"[0].mask_files has 2", "legal: 1"});
  refused([](Deck& d) { d.data.sources[0].weight = -1; }, {"a weight for 1 of 2", "legal: all, or none"});
  refused([](Deck& d) { d.data.sources[0].weight = d.data.sources[1].weight = 0; }, {"weights of sum 0"});
  refused([](Deck& d) { d.data.phases = {{5, 0, {{"c", 1}}}}; }, {"data.phases[0].weights names 'c'"});
  refused([](Deck& d) { d.data.phases = {{5, 0, {{"a", 0}}}}; }, {"data.phases [0].weights", "sum of 0"});
  refused([](Deck& d) { d.data.phases = {{5, 7, {{"a", 1}}}}; }, {"both of from_step and from_tokens"});
  refused(
      [](Deck& d) {
        d.data.phases = {{5, 0, {{"a", 1}}}, {5, 0, {{"b", 1}}}};
      },
      {"data.phases[1] begins with step 5, the one before with step 5"});
  refused([](Deck& d) { d.data.phases = {{5, 0, {{"a", 1}}}, {0, 1, {{"b", 1}}}}; }, {"data.phases[1]", "step 2"});
  expect_refused(
      [](Deck& d) {
        d.data.phases = {{5, 0, {{"a", 1}}}};
      },
      {"data.phases[0].weights names 'a'", "no source"});
  EXPECT_NO_THROW(checked([](Deck& d) { d.data.phases = {{1, 0, {}, d.train.sequence_tokens / 2, 0.5}}; }));
  expect_refused([](Deck& d) { d.data.phases = {{5, 0, {}}}; }, {"data.phases [0] changes nothing", "weights"});
  expect_refused(
      [](Deck& d) {
        d.data.phases = {{5, 0, {}, d.train.sequence_tokens + 1}};
      },
      {"data.phases[0].sequence_tokens", "a divisor of train.sequence_tokens"});
  expect_refused(
      [](Deck& d) {
        d.data.phases = {{5, 0, {}, 1}};
        d.data.packing = Packing::best_fit;
        d.data.document_end_token = 0;
      },
      {"data.phases[0].sequence_tokens with data.packing = best_fit"});
  expect_refused(
      [](Deck& d) {
        d.data.phases = {{5, 0, {}, 0, 0.5}};
        d.optimizer.name = OptimizerName::schedule_free;
        d.optimizer.schedule = RateSchedule::constant;
      },
      {"data.phases[0].rate with optimizer.name = schedule_free"});
  expect_refused([](Deck& d) { d.data.temperature = 2; }, {"data.temperature = 2 without data.sources", "legal: 1"});
}

TEST(Check, ValidationSets) {
  const auto refused = [](auto change, std::initializer_list<const char*> words) {
    expect_refused(
        [&](Deck& d) {
          d.data.validation = {{"web", {"w.bin"}, {}}, {"code", {"c.bin"}, {}, 8}};
          d.train.validate_every_steps = 2;
          change(d);
        },
        words);
  };
  refused([](Deck& d) { d.data.validation_files = {"v.bin"}; },
          {"data.validation and data.validation_files are both given", "legal: one of them"});
  refused([](Deck& d) { d.data.validation[1].name = "web"; }, {"data.validation [1].name = web", "another set"});
  refused([](Deck& d) { d.data.validation[0].name = "a/b"; }, {"data.validation [0].name = 'a/b'", "letters, digits"});
  refused([](Deck& d) { d.data.validation[0].files = {}; }, {"data.validation [0].files = []", "at least one path"});
  refused([](Deck& d) { d.data.validation[1].mask_files = {"x", "y"}; }, {"[1].mask_files has 2", "legal: 1"});
  const Deck deck = checked([](Deck& d) {
    d.data.validation = {{"web", {"w.bin"}, {"m.npy"}, 0}};
    d.train.validate_every_steps = 2;
  });
  EXPECT_EQ(deck.data.held_out(), deck.data.validation);
}

TEST(Check, FilesWithoutANameAreOneSet) {
  DataDeck data;
  EXPECT_TRUE(data.held_out().empty());
  data.validation_files = {"a", "b"};
  data.validation_mask_files = {"m", "n"};
  EXPECT_EQ(data.held_out(), (std::vector<ValidationDeck>{{"", {"a", "b"}, {"m", "n"}}}));
}

TEST(Check, DocumentsAndPacking) {
  expect_refused([](Deck& d) { d.data.packing = Packing::best_fit; }, {"data.packing = best_fit without documents"});
  expect_refused([](Deck& d) { d.data.positions = PositionOrigin::document; },
                 {"data.positions = document without documents", "document_end_token"});
  expect_refused([](Deck& d) { d.data.packing_directory = "x"; }, {"data.packing_directory", "without data.packing"});
  expect_refused([](Deck& d) { d.data.document_end_token = 3, d.data.document_ends = DocumentEnds::index; },
                 {"document_end_token = 3 with data.document_ends = index", "legal: -1"});
  expect_refused([](Deck& d) { d.data.mask_files = {"m", "n"}; }, {"data.mask_files has 2 paths", "legal: 1"});
  expect_refused([](Deck& d) { d.data.validation_mask_files = {"m"}; }, {"data.validation_mask_files has 1 paths"});
  EXPECT_NO_THROW(checked([](Deck& d) {
    d.data.document_ends = DocumentEnds::index;
    d.data.packing = Packing::best_fit;
    d.data.positions = PositionOrigin::document;
    d.data.mask_files = {"m.npy"};
  }));
}

TEST(Check, Preferences) {
  const auto refused = [](auto change, std::initializer_list<const char*> words) {
    expect_refused(
        [&](Deck& d) {
          d.preference.name = PreferenceName::dpo;
          d.data.document_ends = DocumentEnds::index;
          d.data.packing = Packing::pairs;
          d.data.positions = PositionOrigin::document;
          change(d);
        },
        words);
  };
  refused([](Deck& d) { d.data.packing = Packing::best_fit; },
          {"preference.name = dpo with data.packing = best_fit", "legal: pairs, or preference.name: none"});
  refused([](Deck& d) { d.data.positions = PositionOrigin::sample; }, {"data.positions = sample", "legal: document"});
  refused([](Deck& d) { d.data.document_ends = DocumentEnds::token; }, {"data.packing = pairs without documents"});
  refused([](Deck& d) { d.train.z_loss_coefficient = 1e-4; }, {"train.z_loss_coefficient", "legal: 0"});
  refused([](Deck& d) { d.model.mtp_depth = 1; }, {"preference.name = dpo with model.mtp_depth = 1", "legal: 0"});
  refused(
      [](Deck& d) {
        d.data.phases = {{5, 0, {}, 0, 0.5}};
      },
      {"preference.name = dpo with data.phases", "legal: no phases"});
  refused(
      [](Deck& d) {
        d.train.precision = PrecisionName::fp8;
        d.train.fp8_recipe = Fp8Recipe::delayed;
      },
      {"train.fp8_recipe = delayed", "no scales before step 1"});
  refused([](Deck& d) { d.preference.name = PreferenceName::none; },
          {"data.packing = pairs without preference.name = dpo", "legal: cut | best_fit"});
  expect_refused([](Deck& d) { d.preference.beta = 0.5; },
                 {"preference.beta = 0.5 without preference.name = dpo", "legal: 0.1, or name: dpo"});
  expect_refused([](Deck& d) { d.preference.label_smoothing = 0.5; }, {"preference.label_smoothing"});
}

}  // namespace
}  // namespace forge
