#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "../data/files.hpp"
#include "../long_run.hpp"
#include "config/fp8_recipe.hpp"
#include "core/random.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "run_threads.hpp"

// Filler behind the documents of packed samples, and validation's padding, change nothing: losses, loads, drops,
// biases, scales and gradients are those of the same documents in samples that they fill.

namespace forge::test {
namespace {

constexpr std::int32_t end_token = 3;

// Documents by turns of these lengths: samples of `filled` tokens hold one of each, and so do longer ones of T.
struct Documents {
  std::vector<std::int64_t> lengths;
  std::int64_t T;

  std::int64_t filled() const { return lengths.size() == 1 ? lengths[0] : lengths[0] + lengths[1]; }
};
const Documents one_each{{40}, 64}, two_each{{31, 9}, 48};

// No token follows itself, and documents of a sample begin with different ones: what sees the same tokens differs by
// rounding alone.
std::string file_of(const Directory& dir, const Documents& documents, std::int64_t samples) {
  constexpr std::uint64_t first = 4, others = 27;
  std::vector<std::uint16_t> tokens;
  std::uint64_t count = 0;
  for (std::int64_t sample = 0; sample < samples; ++sample)
    for (const std::int64_t length : documents.lengths) {
      std::uint64_t token = count++ % others;
      for (std::int64_t i = 0; i + 1 < length; ++i) {
        tokens.push_back(static_cast<std::uint16_t>(first + token));
        token = (token + 1 + philox(5, tokens.size(), 0)[0] % (others - 1)) % others;
      }
      tokens.push_back(end_token);
    }
  write_tokens(dir / "documents.bin", tokens);
  return dir / "documents.bin";
}

// The deck over those documents, with filler.
Deck with_filler(Deck deck, const Directory& dir, const Documents& documents) {
  const std::string file = file_of(dir, documents, 24);
  deck.data.document_end_token = end_token;
  deck.data.packing = Packing::best_fit;
  deck.data.packing_directory = dir / "plans";
  deck.data.positions = PositionOrigin::document;
  deck.data.files = {file};
  deck.train.sequence_tokens = documents.T;
  deck.train.global_batch_sequences = 8;
  deck.train.steps = 2;
  deck.data.validation_files = {file};
  deck.train.validation_sequences = 5;
  deck.train.validate_every_steps = 2;
  if (deck.model.positions == PositionKind::learned) deck.model.max_positions = 64;  // not T
  return deck;
}
Deck without_filler(Deck deck, const Documents& documents) {
  deck.train.sequence_tokens = documents.filled();
  return deck;
}
Deck checked(Deck deck) {
  EXPECT_EQ(illegality(deck), "");
  return deck;
}

// 1e-12 of losses and of the largest gradient.
std::string gradient_difference(const LayoutResult& result, const LayoutResult& one) {
  std::string text = result.problem;
  if (!(std::abs(result.loss - one.loss) <= 1e-12 * one.loss)) text += "another loss\n";
  if (!(std::abs(result.total_loss - one.total_loss) <= 1e-12 * one.total_loss)) text += "another total loss\n";
  if (result.gradients.size() != one.gradients.size() || one.gradients.empty()) text += "another number of tensors\n";
  double largest = 0;
  for (const auto& [name, values] : one.gradients)
    for (const double value : values) largest = std::max(largest, std::abs(value));
  for (const auto& [name, values] : one.gradients) {
    const std::vector<double>& here = result.gradients.at(name);
    double off = 0;
    for (std::size_t i = 0; i < values.size(); ++i) off = std::max(off, std::abs(values[i] - here.at(i)));
    if (!(off <= 1e-12 * largest)) text += name + " is off by " + std::to_string(off / largest) + "\n";
  }
  return text;
}
std::string difference_of(const LayoutResult& result, const LayoutResult& one) {
  const std::string text = gradient_difference(result, one);
  return text.empty() ? training_difference(result, one, 1e-9) : text;
}

// Where products look for the begins of experts' rows; runs look on the device on GPUs alone.
enum class Begins { on_host, on_device };

LayoutResult trained(const Deck& deck, Begins begins = Begins::on_host) {
  RunOptions options;
  options.train_steps = deck.train.steps;
  if (begins == Begins::on_device) options.kernels.grouped = GroupedProducts::tensor_cores;
  return run_threads(checked(deck), options);
}

// Models with experts, of one and of several depths, and others of what they lack: a capacity that drops much, both
// losses over microbatches, moving biases, choices in turn.
std::vector<TestModel> models_with_experts() {
  std::vector<TestModel> models = moe_models();
  for (const TestModel& model : mtp_models())
    if (model.deck.model.experts > 0) models.push_back(model);
  Deck all = models[0].deck;
  all.model.auxiliary_loss_scope = AuxiliaryScope::microbatch;
  all.model.router_bias = true;
  all.model.router_bias_rate = 1e-2;
  all.model.router_jitter = 0.1;
  all.model.capacity_factor = 0.7;
  all.model.capacity_drop = CapacityDrop::probability;
  all.train.microbatch_sequences = 2;
  models.push_back({"losses over microbatches", all});
  all.model.forced_balance = true;
  models.push_back({"in turn", all});
  return models;
}

TEST(Filler, ChangesNothingOnOneRank) {
  std::size_t number = 0;
  for (const TestModel& model : models_with_experts())
    for (const Documents& documents : {one_each, two_each}) {
      const Directory dir;
      Deck deck = one_rank(with_filler(model.deck, dir, documents));
      deck.train.microbatch_sequences = model.deck.train.microbatch_sequences;
      deck.train.recompute = recompute_of(number++);
      const Begins begins = number % 4 == 1 ? Begins::on_device : Begins::on_host;
      EXPECT_EQ(difference_of(trained(deck, begins), trained(without_filler(deck, documents))), "") << model.name;
    }
}

// pp, dp_replicate, dp_shard, cp, tp, ep, etp; of the third the last tp rank has filler alone.
const MeshDeck meshes[] = {{1, 1, 2, 1, 1, 2, 1}, {1, 1, 1, 2, 2, 2, 2}, {1, 1, 1, 1, 4, 2, 2}, {2, 1, 2, 1, 1, 2, 1},
                           {1, 1, 2, 2, 1, 2, 1}, {1, 2, 1, 1, 2, 1, 2}, {2, 1, 1, 2, 1, 2, 1}};

TEST(Filler, ChangesNothingOnAnyLayout) {
  const Directory dirs[2];
  std::vector<LayoutCase> cases;
  for (const TestModel& model : models_with_experts())
    for (int draw = 0; draw < 2; ++draw) {
      const std::size_t n = cases.size();
      Choice choice;
      const MeshDeck& mesh = meshes[(n + n / 7) % 7];
      choice.zero_stage = mesh.dp_shard > 1 ? static_cast<std::int64_t>(n % 4) : 0;
      choice.recompute = recompute_of(n);
      Deck deck = layout_deck(with_filler(model.deck, dirs[n % 2], n % 2 ? two_each : one_each), mesh, choice, n);
      deck.train.microbatch_sequences = model.deck.train.microbatch_sequences;
      cases.push_back({model.name, deck});
    }
  const auto check = [&](const LayoutCase& c) {
    const Documents& documents = c.deck.train.sequence_tokens == one_each.T ? one_each : two_each;
    Deck one = one_rank(without_filler(c.deck, documents));
    one.train.microbatch_sequences = c.deck.train.microbatch_sequences;
    return difference_of(trained(c.deck, c.deck.mesh.dp_shard > 1 ? Begins::on_device : Begins::on_host), trained(one));
  };
  EXPECT_EQ(failures_of(thinned(cases, 1), part_of(2 * 16, 1), check), "");
}

// Dense models, with what makes filler's rows other than zero; and the largest logits that clip heads.
TEST(Filler, ChangesNothingOfDenseModels) {
  auto models = test_models();
  for (TestModel& model : models) {
    const Directory dir;
    Deck deck = with_filler(model.deck, dir, two_each);
    deck.train.z_loss_coefficient = 1e-2;
    deck.optimizer.qk_clip = model.deck.model.qk_norm ? 0 : 0.2;
    const LayoutResult one = trained(one_rank(without_filler(deck, two_each)));
    EXPECT_TRUE(one.clipped_heads > 0 || model.deck.model.qk_norm) << model.name;
    EXPECT_EQ(difference_of(trained(one_rank(deck)), one), "") << model.name;
    const Deck spread = layout_deck(deck, {1, 1, 1, 2, 2}, Choice(), 2);  // with heads and positions that fit it
    EXPECT_EQ(difference_of(trained(spread), trained(one_rank(without_filler(spread, two_each)))), "") << model.name;
  }
}

// Layers of gated DeltaNet, on one rank and on cp ranks.
TEST(Filler, ChangesNothingOfGatedDeltaNet) {
  const auto models = test_models();
  for (const std::size_t m : {std::size_t{0}, std::size_t{3}})
    for (const MeshDeck& mesh : {MeshDeck{1, 1, 1, 1, 1}, MeshDeck{1, 1, 1, 2, 2}, MeshDeck{1, 1, 1, 4, 1}}) {
      const Directory dir;
      const Documents& documents = m == 0 ? one_each : two_each;
      const Deck deck = with_delta(layout_deck(with_filler(models[m].deck, dir, documents), mesh, Choice(), m), 2 + m);
      EXPECT_EQ(difference_of(trained(deck), trained(one_rank(without_filler(deck, documents)))), "") << text_of(deck);
    }
}

// Scales of whole tensors, of the steps before, of rows and of blocks; filler of gpt2 and qwen2 has biases' magnitudes.
TEST(Filler, MovesNoScale) {
  const auto dense = test_models(), experts = moe_models();
  int different = 0;
  for (const TestModel& model : {dense[1], dense[3], experts[2], experts[6]})
    for (const auto recipe : {Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row, Fp8Recipe::block})
      for (const bool on_device : {false, true}) {
        if (on_device && model.deck.model.experts == 0) continue;
        const Directory dir;
        Deck deck = one_rank(with_filler(model.deck, dir, one_each));
        deck.model.layers = 3;
        deck.train.precision = PrecisionName::fp8;
        deck.train.fp8_recipe = recipe;
        deck.train.fp8_carrier = Fp8Carrier::fp64;
        deck.train.fp8_experts = deck.model.experts > 0;
        deck.output.norms_every_steps = 1;
        const LayoutResult one = trained(without_filler(deck, one_each));
        const LayoutResult filled = trained(deck, on_device ? Begins::on_device : Begins::on_host);
        EXPECT_EQ(difference_of(filled, one), "") << model.name << ", recipe " << static_cast<int>(recipe);
        if (recipe == Fp8Recipe::current) {
          EXPECT_EQ(filled.amaxes, one.amaxes) << model.name;
        }
        different += filled.amaxes != one.amaxes;
      }
  EXPECT_GT(different, 0);  // rows of filler have scales of their own
}

}  // namespace
}  // namespace forge::test
