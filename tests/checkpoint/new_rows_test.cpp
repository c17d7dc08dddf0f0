// model.new_rows against its formula: a directory's tables with more rows, on layouts that cut them in other places.
#include <gtest/gtest.h>

#include "../model/initial_formula.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "hf/config.hpp"
#include "restarts.hpp"
#include "schedule/check_deck.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t base_rows = 50, rows = 77;  // the last ranks of tp have new rows alone, and padding

Deck small_deck(bool tied) {
  Deck deck;
  deck.model.layers = 2;
  deck.model.width = 24;
  deck.model.heads = 12;
  deck.model.ffn = 24;
  deck.model.vocabulary = base_rows;
  deck.model.tied_embeddings = tied;
  deck.train.steps = 1;
  deck.train.seed = 7;
  deck.train.global_batch_sequences = 12;
  deck.train.sequence_tokens = 12;
  deck.train.precision = PrecisionName::fp64;
  deck.optimizer.learning_rate = 1e-3;
  deck.data.files = {std::string(FORGE_SOURCE_DIR) + "/verify/llama/tokens.bin"};
  deck.data.dtype = TokenType::uint16;
  deck.output.directory = "unused";
  deck.machine.workspace_mib = 1;
  return deck;
}

using Tables = std::map<std::string, std::vector<double>>;

// The model's whole tensors on a layout, as `start` has filled the ranks.
template <class T, class Start>
Tables tensors_of(const Deck& deck, Start start) {
  Tables result;
  run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
    Rank<T> rank(world, deck);
    start(rank);
    WholeTensors<T> whole(rank.session->storage(), rank.mesh);
    for (const Unit& unit : rank.setup.units)
      for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
        const auto values = whole.collect(unit, i, TensorSource::parameters, rank.session->stream());
        if (world.rank() == 0) result[unit.parameters[i].name].assign(values.begin(), values.end());
      }
  });
  return result;
}

// Writes a model of initial values as a Hugging Face directory, and returns its tensors.
Tables write_base(const Deck& model, const std::string& directory) {
  Deck deck = model;
  check_deck(deck, 1, Needs::training);
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/config.json") << write_hf_config(deck.model);
  return tensors_of<double>(deck, [&](Rank<double>& rank) {
    rank.session->initialise();
    WholeTensors<double> whole(rank.session->storage(), rank.mesh);
    write_hf_tensors(directory + "/model.safetensors", rank.setup.units, whole, TensorSource::parameters,
                     rank.session->stream(), {});
  });
}

Deck extended_deck(const Deck& base, const std::string& directory, NewRows kind, const Layout& layout) {
  Deck deck = base;
  deck.model = {};
  deck.model.hf = directory;
  deck.model.vocabulary = rows;
  deck.model.new_rows = kind;
  deck.model.initial_std = 0.3;
  deck.model.given = {"hf", "vocabulary", "new_rows", "initial_std"};
  deck.train.seed = 11;
  deck.mesh = layout.mesh;
  deck.train.zero_stage = layout.zero_stage;
  check_deck(deck, static_cast<int>(ranks_of(deck.mesh)), Needs::training);
  return deck;
}

template <class T>
Tables extended(const Deck& deck) {
  return tensors_of<T>(deck, [&](Rank<T>& rank) {
    rank.session->load([&](ParameterStorage<T>& storage, Stream& stream) {
      load_hf_tensors(deck.model.hf, rank.setup.spec, deck.train.seed, storage, stream, replicas_of(rank.mesh));
    });
  });
}

// Each tensor of the files as it is; of the tables the rows behind by the formula, written a second time.
void expect_extended(const Tables& base, const Tables& now, const Deck& deck, const std::string& what) {
  const std::int64_t C = deck.model.width;
  const InitialFormula formula(deck.train.seed, deck.model);
  std::size_t tables = 0;
  ASSERT_EQ(base.size(), now.size()) << what;
  for (const auto& [name, old] : base) {
    const std::vector<double>& values = now.at(name);
    ASSERT_TRUE(std::equal(old.begin(), old.end(), values.begin())) << what << ", " << name;
    if (values.size() == old.size()) continue;
    ++tables;
    ASSERT_EQ(std::ssize(values), rows * C) << what << ", " << name;
    for (std::int64_t c = 0; c < C; ++c) {
      double sum = 0;
      for (std::int64_t r = 0; r < base_rows; ++r) sum += old[static_cast<std::size_t>(r * C + c)];
      const double mean = sum / static_cast<double>(base_rows);
      for (std::int64_t i = base_rows * C + c; i < rows * C; i += C) {
        const auto noise = static_cast<double>(formula.value(name, static_cast<std::uint64_t>(i)));
        const double expected = deck.model.new_rows == NewRows::noise ? mean + noise : mean;
        const double bound = deck.model.new_rows == NewRows::noise ? 1e-14 : 0;
        ASSERT_LE(std::abs(values[static_cast<std::size_t>(i)] - expected), bound) << what << ", " << name << ", " << i;
      }
    }
  }
  EXPECT_EQ(tables, deck.model.tied_embeddings ? 1u : 2u) << what;
}

TEST(NewRows, OfAnyLayoutAreTheFormula) {
  const std::vector<Layout> layouts{{"one rank", {1, 1, 1, 1, 1}},
                                    {"tp 2", {1, 1, 1, 1, 2}},
                                    {"tp 3", {1, 1, 1, 1, 3}},
                                    {"tp 4", {1, 1, 1, 1, 4}},
                                    {"pp 2, tp 2, zero 3", {2, 1, 2, 1, 2}, 3},
                                    {"replicas of shards", {1, 2, 3, 1, 1}, 3}};
  for (const bool tied : {false, true}) {
    const Scratch scratch;
    const Deck base = small_deck(tied);
    const Tables old = write_base(base, scratch.path / "base");
    for (const NewRows kind : {NewRows::mean, NewRows::noise}) {
      Tables first;
      for (const Layout& layout : layouts) {
        const Deck deck = extended_deck(base, scratch.path / "base", kind, layout);
        const std::string what = std::string(layout.name) + (tied ? ", tied" : "");
        const Tables now = extended<double>(deck);
        if (first.empty()) {
          expect_extended(old, now, deck, what);
          first = now;
        }
        EXPECT_EQ(now, first) << what;  // bit for bit
      }
      // In fp32 they are those of fp64, rounded once.
      Deck deck = extended_deck(base, scratch.path / "base", kind, layouts[3]);
      deck.train.precision = PrecisionName::fp32;
      for (auto& [name, values] : first)
        for (double& value : values) value = static_cast<double>(static_cast<float>(value));
      EXPECT_EQ(extended<float>(deck), first) << (tied ? "tied" : "untied");
    }
  }
}

// A directory whose tables don't have config.json's rows is refused, also where they would have the deck's.
TEST(NewRows, TheFilesHaveTheRowsOfConfigJson) {
  const Scratch scratch;
  const Deck base = small_deck(false);
  write_base(base, scratch.path / "base");
  ModelDeck other = base.model;
  other.family = Family{};
  other.kv_heads = 12;
  other.head_dim = 2;
  other.vocabulary = 40;
  std::ofstream(scratch.path / "base/config.json") << write_hf_config(other);
  const Deck deck = extended_deck(base, scratch.path / "base", NewRows::mean, {"one rank", {1, 1, 1, 1, 1}});
  try {
    extended<double>(deck);
    FAIL() << "loaded";
  } catch (const BadInput& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("[50, 24]"), std::string::npos) << text;
    EXPECT_NE(text.find("[40, 24]"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace forge::test
