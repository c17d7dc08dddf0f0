// Of ranks that hold the same values one reads a Hugging Face directory: the others don't look at it.
#include <gtest/gtest.h>

#include "checkpoint/hf_tensors.hpp"
#include "parallel/not_finite.hpp"
#include "restarts.hpp"
#include "schedule/check_deck.hpp"

namespace forge::test {
namespace {

// The verification problem's model and data, in fp64, on a layout.
Deck deck_of(const std::string& problem, const Layout& layout) {
  const std::string folder = std::string(FORGE_SOURCE_DIR) + "/verify/" + problem;
  Deck deck;
  deck.model.hf = folder + "/model";
  deck.model.load_weights = true;
  deck.model.given = {"hf", "load_weights"};
  deck.train.steps = 1;
  deck.train.global_batch_sequences = 8;
  deck.train.sequence_tokens = 16;
  deck.train.precision = PrecisionName::fp64;
  deck.train.zero_stage = layout.zero_stage;
  deck.optimizer.learning_rate = 1e-3;
  deck.data.files = {folder + "/tokens.bin"};
  deck.data.dtype = TokenType::uint16;
  deck.output.directory = "unused";
  deck.machine.workspace_mib = 1;
  deck.mesh = layout.mesh;
  check_deck(deck, static_cast<int>(ranks_of(deck.mesh)), Needs::training);
  return deck;
}

struct Loaded {
  std::map<std::string, std::vector<double>> tensors;  // whole
  std::vector<std::uint64_t> bytes;                    // that each rank has read
};

// Ranks that are the first ones of no group get a directory that isn't there.
Loaded loaded(const std::string& problem, const Layout& layout) {
  const Deck deck = deck_of(problem, layout);
  Loaded result;
  result.bytes.resize(static_cast<std::size_t>(ranks_of(deck.mesh)));
  run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
    Rank<double> rank(world, deck);
    const Replicas replicas = replicas_of(rank.mesh);
    bool reads = false;
    for (const LocalUnit& unit : rank.setup.share.units) reads = reads || replicas(unit)->rank() == 0;
    rank.session->load([&](ParameterStorage<double>& storage, Stream& stream) {
      result.bytes[static_cast<std::size_t>(world.rank())] = load_hf_tensors(
          reads ? deck.model.hf : "/nonexistent", rank.setup.spec, deck.train.seed, storage, stream, replicas);
    });
    WholeTensors<double> whole(rank.session->storage(), rank.mesh);
    for (const Unit& unit : rank.setup.units)
      for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
        const auto values = whole.collect(unit, i, TensorSource::parameters, rank.session->stream());
        if (world.rank() == 0) result.tensors[unit.parameters[i].name] = values;
      }
    // Every replica has them: gradients of a step are those of one rank only then.
    if (!tensors_not_finite(rank.session->storage(), rank.session->stream(), rank.session->arena(), false).empty())
      throw Error("weights that are not finite");
  });
  return result;
}

std::uint64_t sum_of(const std::vector<std::uint64_t>& bytes) {
  std::uint64_t sum = 0;
  for (const std::uint64_t b : bytes) sum += b;
  return sum;
}

TEST(HfReplicas, OneReadsForAll) {
  for (const char* problem : {"llama", "gpt2", "qwen3_moe", "qwen3_next"}) {
    const Loaded one = loaded(problem, {"one rank", {1, 1, 1, 1, 1}});
    for (const Layout& layout : {Layout{"dp 4", {1, 1, 4, 1, 1}}, Layout{"replicas of shards", {1, 2, 2, 1, 1}, 3},
                                 Layout{"replicas alone", {1, 4, 1, 1, 1}, 1}}) {
      const Loaded many = loaded(problem, layout);
      EXPECT_EQ(many.tensors, one.tensors) << problem << ", " << layout.name;
      // Shards that cut a tensor which the files have the other way round read all of it.
      const bool cuts = std::string(problem) == "gpt2";
      EXPECT_TRUE(cuts || sum_of(many.bytes) == sum_of(one.bytes)) << problem << ", " << layout.name;
      EXPECT_EQ(many.bytes.back(), 0u) << problem << ", " << layout.name;
    }
  }
}

TEST(HfReplicas, TensorAndPipelineParallel) {
  const Loaded one = loaded("qwen3_moe", {"one rank", {1, 1, 1, 1, 1}});
  const Loaded many = loaded("qwen3_moe", {"dp 2, tp 2, ep 2", {1, 2, 1, 1, 2, 2, 1}});
  EXPECT_EQ(many.tensors, one.tensors);
  EXPECT_EQ(many.bytes.back(), 0u);
}

// Rows that stand in the files by key heads.
TEST(HfReplicas, GroupedRows) {
  const Loaded one = loaded("qwen3_next", {"one rank", {1, 1, 1, 1, 1}});
  for (const Layout& layout :
       {Layout{"tp 2, zero 3", {1, 1, 2, 1, 2, 1, 1}, 3}, Layout{"pp 3, tp 2", {3, 1, 1, 1, 2, 1, 1}}})
    EXPECT_EQ(loaded("qwen3_next", layout).tensors, one.tensors) << layout.name;
}

}  // namespace
}  // namespace forge::test
