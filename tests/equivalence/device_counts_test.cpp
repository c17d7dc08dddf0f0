#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "../long_run.hpp"
#include "config/fp8_recipe.hpp"
#include "config/grouped_products.hpp"
#include "cover.hpp"
#include "device/memory.hpp"
#include "models.hpp"
#include "nn/dispatch.plan.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

// Rows go to experts of other ranks padded, their counts stay on the device, and forward passes in which rows
// overflow are done again (machine.dispatch_counts). Products on the CPU find begins of rows as tensor cores do.
Deck with_device_counts(Deck deck) {
  deck.machine.grouped = GroupedProducts::tensor_cores;
  deck.machine.dispatch_counts = DispatchCounts::device;
  return deck;
}

MoeShape shape_of(const Deck& deck) {
  return moe_shape(make_setup(deck).buffers);
}

// Models whose rows are padded, those with multi-token prediction too.
std::vector<TestModel> padded_models() {
  std::vector<TestModel> models;
  for (const auto& list : {moe_models(), mtp_models()})
    for (const TestModel& model : list)
      if (model.deck.model.experts > 0) models.push_back(model);
  return models;
}

// pp, dp_replicate, dp_shard, cp, tp, ep, etp
constexpr int mesh_count = 8;
const MeshDeck meshes[mesh_count] = {{1, 1, 2, 1, 1, 2, 1}, {2, 1, 2, 1, 1, 2, 1}, {1, 1, 2, 1, 2, 2, 2},
                                     {1, 1, 1, 1, 2, 1, 2}, {2, 2, 1, 1, 2, 2, 1}, {1, 1, 1, 2, 2, 2, 2},
                                     {1, 2, 2, 1, 1, 2, 1}, {3, 1, 2, 1, 1, 2, 1}};

LayoutCase drawn(const TestModel& model, std::size_t n) {
  Choice choice;
  const MeshDeck& mesh = meshes[n % mesh_count];
  choice.zero_stage = mesh.dp_shard > 1 ? 1 + static_cast<std::int64_t>((n / 3) % 3) : 0;
  choice.recompute = static_cast<Recompute>((n + n / mesh_count) % 3);
  return {model.name, layout_deck(model.deck, mesh, choice, n)};
}

// Layouts of up to twelve ranks, of those models, with pairs of any size.
void add_drawn(std::vector<LayoutCase>& cases) {
  for (const int ranks : {2, 4, 6, 8, 12})
    for (const auto& list : {drawn_moe_layouts(ranks, 53), drawn_mtp_layouts(ranks, 2)})
      for (LayoutCase c : list) {
        if (illegality(c.deck).empty() && !shape_of(with_device_counts(c.deck)).pads) continue;
        c.deck.model.dispatch_rows = 0.3 + 0.2 * static_cast<double>(cases.size() % 9);
        cases.push_back(c);
      }
}

// GPUs have products whose groups begin where the device says in bf16 alone, and layouts are compared in fp64.
bool computes_on_gpu() {
  return std::string(device_info().kind) != "cpu";
}

struct Seen {
  std::atomic<int> padded{0}, repeated{0}, unrepeated{0};
};

std::string compare(Deck deck, References& references, std::int64_t steps, Seen& seen) {
  if (const auto rule = illegality(deck); !rule.empty()) return "is refused: " + rule;
  const LayoutResult& one = references.of(deck, steps);
  const Deck device = with_device_counts(deck);
  seen.padded += shape_of(device).pads;
  RunOptions options;
  options.train_steps = steps;
  options.whole = false;
  options.one = &one;
  const LayoutResult result = run_threads(device, options);
  ++(result.repeats > 0 ? seen.repeated : seen.unrepeated);
  const auto text = difference(result, one, 1);
  return text.empty() && steps > 0 ? training_difference(result, one, 1e-9) : text;
}

// Pairs too small for any router, for some passes of it, and as large as they can get: loss, gradients, training and
// validation equal one rank's; what is planned of memory, products and bytes holds where nothing was done again.
TEST(DeviceCounts, LayoutsEqualOneRankWhateverOverflows) {
  if (computes_on_gpu()) GTEST_SKIP() << "in fp64";
  const double rows[] = {0.4, 1.2, 64};
  std::vector<LayoutCase> cases;
  for (const TestModel& model : padded_models())
    for (int draw = 0; draw < 3; ++draw) {
      const std::size_t n = cases.size();
      LayoutCase c = drawn(model, n);
      c.deck.model.dispatch_rows = rows[(n + n / 3) % 3];
      if (n % 4 == 0) c.deck = with_training(c.deck, 3);
      cases.push_back(c);
    }
  if (long_run()) add_drawn(cases);
  References references;
  Seen seen;
  EXPECT_EQ(failures_of(
                cases, cases.size(),
                [&](const LayoutCase& c) { return compare(c.deck, references, c.deck.train.steps > 1 ? 3 : 0, seen); }),
            "");
  EXPECT_EQ(seen.padded, static_cast<int>(cases.size()));
  EXPECT_GE(seen.repeated, static_cast<int>(cases.size()) / 3);
  EXPECT_GE(seen.unrepeated, static_cast<int>(cases.size()) / 4);
}

// Two runs of a deck, with counts on the host and on the device.
struct Pair {
  LayoutResult host, device;
};
Pair both(const Deck& deck, std::int64_t steps, const Routing* routing = nullptr) {
  RunOptions options;
  options.train_steps = steps;
  options.routing = routing;
  Deck with_host = with_device_counts(deck);
  with_host.machine.dispatch_counts = DispatchCounts::host;
  return {run_threads(with_host, options), run_threads(with_device_counts(deck), options)};
}

void expect_same_bits(const Pair& runs, const std::string& name) {
  EXPECT_EQ(runs.host.problem + runs.device.problem, "") << name;
  EXPECT_EQ(runs.host.loss, runs.device.loss) << name;
  EXPECT_EQ(runs.host.total_loss, runs.device.total_loss) << name;
  EXPECT_EQ(runs.host.grad_norm, runs.device.grad_norm) << name;
  EXPECT_TRUE(runs.host.gradients == runs.device.gradients) << name;
  EXPECT_EQ(runs.host.losses, runs.device.losses) << name;
  EXPECT_EQ(runs.host.norms, runs.device.norms) << name;
  EXPECT_TRUE(runs.host.reports == runs.device.reports) << name;
  EXPECT_TRUE(runs.host.parameters == runs.device.parameters) << name;
}

Deck small(const Deck& model, std::size_t n, double rows) {
  Deck deck = drawn({"", model}, n).deck;
  deck.model.dispatch_rows = rows;
  return deck;
}

// Padding is no row of any expert, so no bit changes, in any precision, where all rows of both fit one round.
TEST(DeviceCounts, RowsThatFitHaveTheBitsOfCountsOnTheHost) {
  if (computes_on_gpu()) GTEST_SKIP() << "in fp64, too";
  std::size_t n = 0, compared = 0;
  for (const TestModel& model : padded_models())
    for (const auto precision : {PrecisionName::fp64, PrecisionName::bf16, PrecisionName::fp8}) {
      Deck deck = small(model.deck, n++, 64);
      deck.train.precision = precision;
      if (precision == PrecisionName::fp8) {
        deck.train.fp8_recipe = static_cast<Fp8Recipe>(n / 3 % 4);
        deck.train.fp8_experts = true;
        deck.train.fp8_dispatch = n % 2 == 0;
      }
      if (!illegality(deck).empty()) continue;  // blocks in FP8 that this stage's layers don't have
      const Pair runs = both(deck, 0);
      if (runs.device.repeats > 0) continue;
      ++compared;
      expect_same_bits(runs, model.name + " " + text_of(deck));
    }
  EXPECT_GE(compared, n / 2);
}

// What forward passes add to beside the router's sums: histories and counts of FP8, the largest logits of attention.
// Passes that are done again wait for counts as all do with these on the host, so that no bit changes here either.
TEST(DeviceCounts, PassesThatOverflowedAddNothing) {
  Deck deck = moe_models().front().deck;
  deck.model.dispatch_rows = 0.5;
  deck.mesh.dp_shard = deck.mesh.ep = 2;
  deck.train.precision = PrecisionName::fp8;
  deck.train.fp8_recipe = Fp8Recipe::delayed;
  deck.train.fp8_experts = true;
  deck.optimizer.qk_clip = 0.01;
  deck.output.norms_every_steps = 1;
  deck = with_training(deck, 3);
  ASSERT_EQ(illegality(deck), "");
  // Sums over rows are cut into the same rounds.
  EXPECT_EQ(shape_of(with_device_counts(deck)).round_rows, shape_of(deck).round_rows);
  const Pair runs = both(deck, 3);
  EXPECT_GT(runs.device.repeats, 0);
  EXPECT_GT(runs.host.clipped_heads, 0);
  EXPECT_FALSE(runs.host.reports.empty());
  expect_same_bits(runs, "");
}

// All rows of one sample go to the first experts, so that the pairs of one rank alone overflow, in one microbatch: all
// ranks of the stage do it again, those of the other stage don't. In bf16, as GPUs have such products in no other
// precision.
TEST(DeviceCounts, OneRanksOverflowIsEverybodys) {
  Deck deck = moe_models().front().deck;
  deck.train.precision = PrecisionName::bf16;
  deck.model.layers = 2;
  deck.model.dispatch_rows = 1.9;
  deck.train.global_batch_sequences = 4;
  deck.train.microbatch_sequences = 1;
  deck.mesh.dp_shard = deck.mesh.ep = deck.mesh.pp = 2;
  deck.train.zero_stage = 3;
  deck.train.recompute = Recompute::full;
  ASSERT_EQ(illegality(deck), "");
  const LayoutResult own = run_threads(deck, {});
  ASSERT_EQ(own.problem, "");
  const std::int64_t last = std::prev(own.routing.end())->first[0], sample = own.routing.begin()->first[1];
  const auto experts = static_cast<std::int32_t>(deck.model.experts);
  Routing routing;
  for (const auto& [key, choices] : own.routing) {
    auto& row = routing[key];
    for (std::size_t c = 0; c < choices.size(); ++c) {
      const bool crowds = key[0] == last && key[1] == sample;
      const auto turn = static_cast<std::int32_t>(key[1] + key[2] + static_cast<std::int64_t>(c) * (experts / 2));
      row.push_back(crowds ? static_cast<std::int32_t>(c) : turn % experts);
    }
  }
  const Pair runs = both(deck, 0, &routing);
  expect_same_bits(runs, "");
  EXPECT_EQ(runs.device.repeats, 0);  // of the first rank, whose stage has other layers
  EXPECT_EQ(runs.device.most_repeats, 1);
}

}  // namespace
}  // namespace forge::test
