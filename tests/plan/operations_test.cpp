#include "plan/task_segments.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "../equivalence/cover.hpp"
#include "../equivalence/layout_run.hpp"
#include "../equivalence/models.hpp"
#include "../equivalence/run_threads.hpp"
#include "../model/recompute_lists.hpp"
#include "config/fp8_recipe.hpp"
#include "config/read.hpp"
#include "config/text.hpp"
#include "model/flops.hpp"
#include "plan/setup.hpp"

// What tasks compute. That it is what runs, product by product: layout_run, in every test of a layout.

namespace forge::test {
namespace {

// Whether a query at position q sees the key at k.
bool sees(std::int64_t q, std::int64_t k, std::int64_t window) {
  return k <= q && (window == 0 || q - k < window);
}
std::vector<std::int64_t> positions_of(const PositionRuns& runs) {
  std::vector<std::int64_t> positions;
  for (const PositionRun& run : runs)
    for (std::int64_t i = 0; i < run.length; ++i) positions.push_back(run.begin + i);
  return positions;
}

// Pairs and tiles that a mask leaves, against counting them one by one.
TEST(Operations, PairsAndTilesOfAMask) {
  constexpr std::int64_t T = 48;
  for (const int cp : {1, 2, 4})
    for (const std::int64_t window : {0, 1, 5, 17, 100})
      for (int q = 0; q < cp; ++q)
        for (int k = 0; k < cp; ++k) {
          const AttentionProduct a{false, 1, 1, 1, 4, 4, position_runs(T, cp, q), position_runs(T, cp, k), window};
          const auto queries = positions_of(a.queries), keys = positions_of(a.keys);
          ASSERT_EQ(queries.size(), static_cast<std::size_t>(T / cp));
          for (const std::size_t rows : {1, 5, 8}) {
            std::int64_t tiles = 0;
            for (std::size_t i = 0; i < queries.size(); i += rows)
              for (std::size_t j = 0; j < keys.size(); j += rows + 1) {
                bool any = false;
                for (std::size_t r = i; r < std::min(i + rows, queries.size()); ++r)
                  for (std::size_t s = j; s < std::min(j + rows + 1, keys.size()); ++s)
                    any = any || sees(queries[r], keys[s], window);
                tiles += any;
              }
            EXPECT_EQ(a.tiles(static_cast<std::int64_t>(rows), static_cast<std::int64_t>(rows) + 1), tiles)
                << cp << " " << window << " " << q << " " << k << " " << rows;
          }
          double pairs = 0;
          for (const std::int64_t i : queries)
            for (const std::int64_t j : keys) pairs += sees(i, j, window);
          EXPECT_EQ(a.pairs(), pairs) << cp << " " << window << " " << q << " " << k;
        }
}

// A deck on one rank, with its data left out.
Deck alone(Deck deck) {
  deck.mesh = MeshDeck{};
  deck.mesh.dp_shard = 1;
  deck.schedule = ScheduleDeck{};
  deck.train.zero_stage = 0;
  deck.train.recompute = Recompute::none;
  deck.train.recompute_full_layers = 0;
  deck.train.global_batch_sequences = deck.train.microbatch_sequences;
  return deck;
}

// Model FLOPs of a step by the formula, and those of the lists: backward takes twice what forward takes, but for
// attention, whose scores are computed a second time. Model FLOPs of gated DeltaNet are the recurrence's, whatever its
// chunks take, in sums where the model computes in bf16: both are left out.
void expect_formula(const Deck& deck, const std::string& name) {
  const RunSetup setup = make_setup(alone(deck), 0);
  double forward = 0, backward = 0, scores = 0, recurrence = 0;
  ASSERT_TRUE(setup.spec.options.full_attention_interval == 0 || setup.buffers.precision.compute == DType::bf16);
  for (const Task& task : step_tasks(setup.share, setup.schedule, Recompute::none)) {
    const Segments list = segments_of(setup.buffers, setup.share, task);
    const std::vector<Product> products = list.all<Product>();
    if (task.op == TaskOp::forward && setup.share.layers[0][to_size(task.layer)].kind == LayerKind::head)
      for (std::size_t i = 0; i < products.size(); ++i)
        (products[i].of == ProductOf::output ? forward : backward) +=
            products[i].flops() / (products[i].of == ProductOf::output && setup.buffers.pairs ? 2 : 1);
    else
      (task.op == TaskOp::forward ? forward : backward) += list.flops();
    if (setup.spec.options.full_attention_interval > 0)
      for (const ExpertProduct& chunk : list.all<ExpertProduct>())
        if (chunk.operands == DType::f32) (task.op == TaskOp::forward ? forward : backward) -= chunk.flops();
    for (const AttentionProduct& a : list.all<AttentionProduct>())
      if (a.backward) scores += 2 * static_cast<double>(a.sequences * a.heads * a.head_size) * a.pairs();
  }
  const auto tokens = static_cast<double>(setup.tokens_per_step());
  double formula = adapter_flops_per_token(setup.spec, setup.units);
  for (const FlopsLine& line : forward_flops_per_token(setup.spec, setup.deck.train.sequence_tokens))
    (line.part == "delta rule" ? recurrence : formula) += line.forward;
  EXPECT_GT(formula, 0) << name;
  EXPECT_NEAR(forward / (tokens * formula), 1, 1e-12) << name;
  EXPECT_NEAR((forward + backward - scores) / tokens /
                  (training_flops_per_token(setup.spec, setup.units, deck.train.sequence_tokens) - 3 * recurrence),
              1, 1e-12)
      << name;
}

// What mfu divides by is the fold of the lists: models of the tests, with all options, …
TEST(Operations, AreTheFormulaOfModels) {
  int models = 0;
  for (const auto& list : {test_models(), moe_models(), mtp_models()})
    for (const TestModel& model : list) {
      Deck deck = model.deck;
      // The formula counts all of a token's experts.
      deck.model.capacity_factor = 0;
      expect_formula(deck, model.name);
      ++models;
    }
  EXPECT_GE(models, 12);
}

// … models of drawn dimensions, …
TEST(Operations, AreTheFormulaOfDrawnModels) {
  for (std::uint64_t key = 0; key < 40; ++key) {
    Deck deck = drawn_model(key).deck;
    deck.model.capacity_factor = 0;
    expect_formula(deck, "model " + std::to_string(key));
  }
}

// … and the decks that come with the program.
TEST(Operations, AreTheFormulaOfDecks) {
  int decks = 0;
  for (const auto& entry : std::filesystem::directory_iterator("inputs")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string file = entry.path();
    Deck deck = read_deck(read_text_file(file, 1 << 20, "deck"), file, {});
    ASSERT_EQ(illegality(deck), "") << file;
    expect_formula(deck, file);
    ++decks;
  }
  EXPECT_GE(decks, 46);
}

// Layouts whose router loads all experts alike, without documents: rows of experts and pairs as they run.
TEST(Operations, OfExpertsLoadedAlike) {
  int runs = 0;
  for (const DispatchMethod dispatch : {DispatchMethod::all_to_all, DispatchMethod::all_gather})
    for (const int cp : {1, 2})
      for (const auto& [ep, etp, tp] : {std::array{1, 1, 1}, {2, 1, 1}, {1, 2, 2}, {2, 1, 2}}) {
        Deck deck = moe_models().front().deck;
        deck.model.forced_balance = true;
        deck.model.dispatch = dispatch;
        deck.model.dispatch_rows = 1.5;
        if (etp == 2) deck.model.capacity_factor = 1.25;  // choices are gathered once, those that are left
        deck.model.shared_expert_ffn = cp == 1 ? 0 : 40;
        deck.train.sequence_tokens = 48;  // a multiple of the experts on every rank
        deck.data.document_end_token = -1;
        deck.mesh = {1, 1, ep * etp > tp ? ep * etp / tp : 1, cp, tp, ep, etp};
        if (runs % 2 == 1) {
          deck.train.precision = PrecisionName::fp8;
          deck.train.fp8_carrier = Fp8Carrier::fp64;
          deck.train.fp8_recipe = static_cast<Fp8Recipe>(runs % 3);
          deck.train.fp8_experts = true;
          deck.train.fp8_dispatch = runs % 4 == 1;
        }
        const LayoutResult result = run_threads(deck, {.alike = true});
        EXPECT_EQ(result.problem, "") << text_of(deck);
        ++runs;
      }
  EXPECT_EQ(runs, 16);
}

// Every model of the tests, whose router loads all experts alike and which has no documents.
std::vector<Deck> alike_models() {
  std::vector<Deck> decks;
  for (const auto& list : {test_models(), moe_models(), mtp_models()})
    for (const TestModel& model : list) {
      Deck deck = model.deck;
      deck.data.document_end_token = -1;
      if (deck.model.experts > 0) {
        deck.model.forced_balance = true;
        deck.model.dispatch_rows = 1.5;
        deck.model.capacity_factor = deck.model.capacity_factor > 0 ? 1 : 0;
        deck.train.sequence_tokens = 48;
      }
      decks.push_back(deck);
    }
  return decks;
}

// Bytes of kernels over rows, segment by segment: of each model with each precision and each recomputation, in layouts
// that take turns.
TEST(Operations, BytesOfRowKernels) {
  const std::array<MeshDeck, 6> meshes{{{1, 1, 1, 1, 1, 1, 1},
                                        {1, 1, 1, 1, 2, 2, 1},
                                        {1, 1, 1, 2, 2, 1, 2, CpMethod::ring},
                                        {1, 1, 2, 2, 2, 2, 2, CpMethod::all_gather},
                                        {1, 1, 2, 2, 1, 2, 1, CpMethod::all_to_all},
                                        {1, 1, 1, 4, 1, 1, 1, CpMethod::ring}}};
  std::size_t runs = 0;
  for (Deck deck : alike_models())
    for (const PrecisionName precision : {PrecisionName::fp64, PrecisionName::fp32, PrecisionName::bf16})
      for (const Recompute recompute :
           {Recompute::none, Recompute::selective, recompute_list(deck.model, runs / 4), Recompute::full}) {
        deck.mesh = meshes[runs++ % meshes.size()];
        if (deck.model.experts == 0) deck.mesh.ep = 1, deck.mesh.etp = 0;
        deck.train.precision = precision;
        deck.train.recompute = recompute;
        deck.train.microbatch_sequences = 1 + static_cast<std::int64_t>(runs / meshes.size() % 2);
        ASSERT_EQ(illegality(deck), "") << text_of(deck);
        EXPECT_EQ(run_threads(deck, {.whole = false, .alike = true}).problem, "") << text_of(deck);
      }
  EXPECT_GE(runs, 12u * 17);
}

// Collectives of tp ranks in a layer and microbatch: those that the compute stream runs itself, and those behind it.
struct TensorCalls {
  std::int64_t exposed = 0, behind = 0;
  bool operator==(const TensorCalls&) const = default;
};
TensorCalls calls_of_block(Deck deck) {
  deck.train.global_batch_sequences = deck.train.microbatch_sequences * deck.mesh.pp;
  EXPECT_EQ(illegality(deck), "");
  const RunSetup setup = make_setup(deck, 0);
  TensorCalls calls;
  std::int64_t forwards = 0;
  for (const Task& task : step_tasks(setup.share, setup.schedule, setup.buffers.recompute)) {
    const LayerPass pass = pass_of(task, setup.share);
    if (!pass.layer || pass.layer->kind != LayerKind::block) continue;
    forwards += pass.pass == Pass::forward;
    const Segments list = segments_of(setup.buffers, setup.share, task);
    for (std::size_t i = 0; i < list.segments.size(); ++i)
      if (const Sent* sent = std::get_if<Sent>(&list.segments[i])) {
        EXPECT_EQ(list.behind[i], sent->group == Group::tp_behind);
        ++(list.behind[i] ? calls.behind : calls.exposed);
      }
  }
  return {calls.exposed / forwards, calls.behind / forwards};
}

// Ten a layer: W's gathers and B's sums go behind products, and full recomputation, which adds three, leaves W its
// rows.
TEST(Operations, CollectivesOfTensorParallelismBehindProducts) {
  Deck deck = test_models().front().deck;
  deck.mesh = {1, 1, 1, 1, 2};
  for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
    deck.train.recompute = recompute;
    EXPECT_EQ(calls_of_block(deck), (TensorCalls{6, 4}));
  }
  deck.train.recompute = Recompute::full;
  EXPECT_EQ(calls_of_block(deck), (TensorCalls{9, 2}));
  deck.train.recompute = Recompute::none;
  deck.mesh.pp = 2;
  deck.schedule.name = ScheduleName::one_f_one_b;
  EXPECT_EQ(calls_of_block(deck), (TensorCalls{6, 4}));
}

TEST(Operations, ExpertsInFp8NeedABlockInFp8) {
  Deck deck = moe_models().front().deck;
  deck.model.first_dense_layers = 0;
  deck.model.moe_every = 1;
  deck.model.dense_layers = {0};
  deck.mesh.dp_shard = 1;
  deck.train.precision = PrecisionName::fp8;
  deck.train.fp8_carrier = Fp8Carrier::fp64;
  deck.train.fp8_experts = true;
  EXPECT_NO_THROW(make_setup(deck, 0));
  deck.train.fp8_last_layers_bf16 =
      deck.model.layers + deck.model.mtp_depth - 1;  // the first block, without experts, is left
  EXPECT_THROW(make_setup(deck, 0), BadInput);
}

// Of a dense block, forward and backward, on a GPU that multiplies codes; filling with zeros is no kernel.
std::int64_t launches_of_block(Deck deck) {
  deck.train.microbatch_sequences = 1;
  const RunSetup setup = on_devices(make_setup(alone(deck), 0), 90);
  std::int64_t launches = 0;
  for (const Task& task : step_tasks(setup.share, setup.schedule, Recompute::none))
    if (const LayerPass p = pass_of(task, setup.share); p.layer && p.layer->kind == LayerKind::block)
      if (p.layer->number == 0) launches += segments_of(setup.buffers, setup.share, task).launches();
  return launches;
}

// FP8's own: codes of the operands of each product, of two at once where both have scales before (joins_codes), and
// amaxes of four operands whose kernels don't leave them.
TEST(Operations, LaunchesOfADenseBlockInFp8) {
  const std::string file = "inputs/7b_16gpu_fp8.yaml";
  Deck deck = read_deck(read_text_file(file, 1 << 20, "deck"), file, {});
  ASSERT_EQ(illegality(deck), "");
  deck.train.fp8_recipe = Fp8Recipe::current;
  EXPECT_EQ(launches_of_block(deck), 27 + 12 - 2 + 4);
  deck.train.fp8_recipe = Fp8Recipe::delayed;
  EXPECT_EQ(launches_of_block(deck), 27 + 12 - 4);
  deck.train.precision = PrecisionName::bf16;
  EXPECT_EQ(launches_of_block(deck), 27);
}

// Without documents: every pair that cp ranks work on, with and without a window, in each method's order.
TEST(Operations, PairsOfContextParallelRanks) {
  int runs = 0;
  for (const CpMethod method : {CpMethod::ring, CpMethod::all_gather, CpMethod::all_to_all})
    for (const int cp : {1, 2, 4})
      for (const int tp : {1, 2})
        for (const Recompute recompute : {Recompute::none, Recompute::full}) {
          Deck deck = test_models().front().deck;
          deck.model.sliding_window = 5;
          deck.model.sliding_window_layer = 2;
          deck.data.document_end_token = -1;
          deck.train.microbatch_sequences = 2;
          deck.train.recompute = recompute;
          deck.mesh = {1, 1, 1, cp, tp, 1, 0, method};
          EXPECT_EQ(run_threads(deck, {.alike = true}).problem, "") << text_of(deck);
          ++runs;
        }
  EXPECT_EQ(runs, 36);
}

// Rounds of whole matrices, of which a shard may have all parts of a shape's: no rank holds more of one than it has
// room for, and every matrix has its turn.
TEST(Operations, RoundsOfMatricesAreBounded) {
  const std::string file = "inputs/7b_16gpu_muon.yaml";
  Deck deck = read_deck(read_text_file(file, 1 << 20, "deck"), file, {});
  ASSERT_EQ(illegality(deck), "");
  std::int64_t owned = 0, held = 0;
  for (int rank = 0; rank < 16; ++rank) {
    const WholeMatrices matrices = make_setup(deck, rank).share.matrices;
    EXPECT_LE(matrices.held, std::int64_t{1} << 26);
    EXPECT_GT(matrices.held, std::int64_t{1} << 24);
    for (const MatrixRound& round : matrices.rounds) {
      for (const MatrixStack& stack : round.stacks) owned += stack.count();
      held += round.held_elements();
      EXPECT_LE(round.held_elements(), matrices.held);
    }
  }
  EXPECT_EQ(owned, 32 * 7);
  EXPECT_EQ(held, std::int64_t{32} * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336));
}

}  // namespace
}  // namespace forge::test
