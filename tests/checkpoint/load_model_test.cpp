#include <gtest/gtest.h>

#include "comm/thread_communicator.hpp"
#include "restarts.hpp"

namespace forge::test {
namespace {

// Trains two steps of a model on a layout in fp64 and saves them.
std::string trained(const Deck& model, const Layout& layout, const std::string& directory) {
  Deck deck = model;
  deck.train.steps = 2;
  deck.train.precision = PrecisionName::fp64;
  deck.checkpoint.directory = directory;
  deck = deck_on(deck, layout);
  run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
    Rank<double> rank(world, deck);
    rank.session->initialise();
    rank.train({});
  });
  return directory + "/" + step_name(2);
}

// A run that starts with those parameters: what each rank holds is the checkpoint's, rounded; then it trains.
template <class T>
std::vector<StepRecord> expect_loaded(const Deck& model, const Layout& layout, PrecisionName precision,
                                      const std::string& from, const WholeState& whole) {
  using S = acc_t<T>;
  Deck deck = model;
  deck.train.steps = 1;
  deck.train.precision = precision;
  deck.train.seed = 99;
  deck.checkpoint.model_from = from;
  deck = deck_on(deck, layout);
  std::vector<StepRecord> steps;
  run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
    Rank<T> rank(world, deck);
    rank.session->initialise();
    std::vector<std::string> notes;
    const std::string said = load_model(*rank.session, deck, notes);
    if (said.find("step 2") == std::string::npos) throw Error("another text: " + said);
    bool biases = false;
    for (const StateTensor& tensor : session_state(*rank.session, StateUse::read)) {
      const bool moment = tensor.name.find("_moment/") != std::string::npos;
      biases = biases || tensor.name.rfind("state/", 0) == 0;
      for (const StatePiece& piece : tensor.pieces) {
        const std::vector<std::byte> bytes = bytes_of(*rank.session, tensor, piece);
        for (std::int64_t i = 0; i < piece.box.size(); ++i) {
          Extents index = index_at(piece.box.extent, i);
          for (std::size_t d = 0; d < index.size(); ++d) index[d] += piece.box.offset[d];
          double stored = 0;
          std::memcpy(&stored, whole.at(tensor.name).data() + flat_index(tensor.shape, index) * 8, 8);
          const S expected = moment ? S(0) : static_cast<S>(stored);
          if (std::memcmp(bytes.data() + static_cast<std::size_t>(i) * sizeof(S), &expected, sizeof(S)) != 0)
            throw Error(tensor.name + " has other values");
        }
      }
    }
    if (biases != model.model.router_bias) throw Error("no biases of routers");
    const TrainingLog log(nullptr, world.rank() == 0 ? &steps : nullptr);
    Trainer<T>(*rank.session, rank.data, 1, log).run();
  });
  return steps;
}

// From one rank of experts to many, in other precisions; moments and step start anew.
TEST(ModelFrom, ParametersAndBiasesOnAnyLayout) {
  Deck model = moe_models()[2].deck;
  model.train.global_batch_sequences = 12;
  const Scratch scratch;
  const std::string from = trained(model, {"ep 2", {1, 1, 2, 1, 1, 2, 1}}, scratch.path);
  const WholeState whole = whole_state(from);
  const Layout one{"one rank", {1, 1, 1, 1, 1}}, many{"pp 2, tp 2, ep 2, zero 3", {2, 1, 2, 1, 2, 2, 1}, 3};
  const auto reference = expect_loaded<double>(model, one, PrecisionName::fp64, from, whole);
  const auto other = expect_loaded<double>(model, many, PrecisionName::fp64, scratch.path, whole);
  ASSERT_EQ(reference.size(), 1u);
  EXPECT_EQ(reference[0].step, 1);
  EXPECT_NEAR(reference[0].loss, other.at(0).loss, 1e-12 * reference[0].loss);
  expect_loaded<float>(model, many, PrecisionName::fp32, from, whole);
}

std::string refusal(const Deck& deck) {
  std::string text;
  run_ranks(1, [&](Communicator& world) {
    Rank<double> rank(world, deck);
    try {
      std::vector<std::string> notes;
      load_model(*rank.session, deck, notes);
    } catch (const BadInput& error) {
      text = error.what();
    } catch (const BadCheckpoint& error) {
      text = std::string("unusable: ") + error.what();
    }
  });
  return text;
}

// Another model or vocabulary: both values. A damaged newest checkpoint: the one before.
TEST(ModelFrom, RefusesAnotherModel) {
  const Deck model = test_models()[0].deck;
  const Layout one{"one rank", {1, 1, 1, 1, 1}};
  const Scratch scratch;
  const std::string from = trained(model, one, scratch.path);
  Deck deck = model;
  deck.checkpoint.model_from = scratch.path;
  deck.model.vocabulary = 37;
  EXPECT_NE(refusal(deck_on(deck, one)).find("model.vocabulary = 37, the checkpoint has 31"), std::string::npos);
  deck.model.vocabulary = 31;
  deck.model.qkv_bias = true;
  EXPECT_NE(refusal(deck_on(deck, one)).find("model.qkv_bias = true, the checkpoint has false"), std::string::npos);
  deck.model.qkv_bias = false;
  EXPECT_EQ(refusal(deck_on(deck, one)), "");
  deck.checkpoint.model_from = scratch.path / "none";
  EXPECT_NE(refusal(deck_on(deck, one)).find("neither a checkpoint"), std::string::npos);
  fs::remove(from + "/" + shard_name(0));
  deck.checkpoint.model_from = scratch.path;
  EXPECT_NE(refusal(deck_on(deck, one)).find("unusable: "), std::string::npos);
}

}  // namespace
}  // namespace forge::test
