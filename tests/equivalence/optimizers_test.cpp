#include <gtest/gtest.h>

#include <map>
#include <set>

#include "../long_run.hpp"
#include "config/optimizer_table.hpp"
#include "cover.hpp"
#include "layout/unit_buffers.hpp"
#include "layout/whole_matrices.hpp"
#include "models.hpp"
#include "plan/placement.hpp"
#include "plan/setup.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t steps = 10;

Deck with_optimizer(Deck deck, OptimizerName name) {
  deck.optimizer.name = name;
  if (row_of(name).averages) deck.optimizer.schedule = RateSchedule::constant;
  if (row_of(name).whole_matrices()) deck.optimizer.adam_learning_rate = 4e-3;
  // Adam divides the rounding of key biases, which have no gradient, by no less.
  if (row_of(name).whole_matrices() && deck.model.qkv_bias) deck.optimizer.epsilon = 1e-6;
  if (!row_of(name).rotates()) return deck;
  deck.optimizer.soap_basis_every_steps = 3;
  if (deck.model.experts == 0) deck.optimizer.soap_largest_side = 36;  // less than the feed-forward layer's columns
  return deck;
}

// Biases of keys have no gradient: softmax doesn't see what all keys have in common. These optimizers make much of
// their rounding.
bool makes_noise_large(OptimizerName name, const Deck& deck) {
  return deck.model.qkv_bias && (name == OptimizerName::lion || name == OptimizerName::adafactor);
}

// Meshes of 1 … 8 ranks, with dense models (tied and not, latent attention) and with experts.
std::vector<LayoutCase> layouts_of(OptimizerName name) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    auto drawn = drawn_layouts(ranks, 71);
    const auto experts = drawn_moe_layouts(ranks, 73);
    drawn.insert(drawn.end(), experts.begin(), experts.end());
    for (LayoutCase& c : drawn) {
      if (makes_noise_large(name, c.deck)) continue;
      cases.push_back({c.name, with_training(with_optimizer(c.deck, name), steps)});
    }
  }
  return cases;
}

// Every stride-th of so many layouts.
void expect_one_ranks(OptimizerName name, std::size_t stride) {
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-10); };
  const auto cases = layouts_of(name);
  EXPECT_GE(cases.size(), 144u);
  EXPECT_EQ(failures_of(thinned(cases, stride), part_of(cases.size(), stride), check), "");
}

// Ten steps: losses, norms, every parameter and the validation loss.
TEST(Optimizers, LionEqualsOneRank) {
  expect_one_ranks(OptimizerName::lion, 9);
}
TEST(Optimizers, SgdEqualsOneRank) {
  expect_one_ranks(OptimizerName::sgd, 12);
}
TEST(Optimizers, ScheduleFreeEqualsOneRank) {
  expect_one_ranks(OptimizerName::schedule_free, 12);
}
TEST(Optimizers, MuonEqualsOneRank) {
  expect_one_ranks(OptimizerName::muon, 3);
}
TEST(Optimizers, NormuonEqualsOneRank) {
  expect_one_ranks(OptimizerName::normuon, 8);
}
// Bases are refreshed behind updates 1, 4, 7 and 10.
TEST(Optimizers, SoapEqualsOneRank) {
  expect_one_ranks(OptimizerName::soap, 16);
}
TEST(Optimizers, AdafactorEqualsOneRank) {
  expect_one_ranks(OptimizerName::adafactor, 6);
}

// Rates and decays of their own, by name; of Muon's matrices some have AdamW, in the midst of others.
TEST(Optimizers, GroupsEqualOneRank) {
  for (const OptimizerName name : {OptimizerName::muon, OptimizerName::adamw, OptimizerName::adafactor}) {
    auto cases = layouts_of(name);
    for (LayoutCase& c : cases) {
      OptimizerDeck& o = c.deck.optimizer;
      o.groups = {{"*.attention.*", 2e-3, {}, {}}, {"layers.1.*", {}, 0.5, {}}, {"*norm*", 0.0, 0.2, {}}};
      if (name != OptimizerName::muon) continue;
      o.groups.insert(o.groups.begin(), {"layers.0.*", {}, {}, OptimizerName::adamw});
      o.groups.insert(o.groups.begin(), {"*.down", {}, 0.0, OptimizerName::adamw});
    }
    References references;
    const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-10); };
    EXPECT_GE(cases.size(), 144u);
    const auto some = thinned(cases, 12);
    EXPECT_EQ(failures_of(some, some.size(), check), "") << row_of(name).word;
  }
}

// ---- owners of whole matrices

// The parts' sizes in a round between an owner and a holder, as each of them lists them: those that come, or all that
// go back.
std::vector<std::int64_t> received(const MatrixRound& round, int holder, bool back) {
  std::vector<std::int64_t> sizes;
  for (const MatrixStack& stack : round.stacks)
    for (const OwnedPart& part : stack.parts)
      if (part.holder == holder && (back || part.sent)) sizes.push_back(part.count);
  return sizes;
}
std::vector<std::int64_t> sent(const RunSetup& holder, std::size_t round, int owner, bool back) {
  std::vector<std::int64_t> sizes;
  for (const HeldPart& part : holder.share.matrices.rounds.at(round).held)
    if (part.owner == owner && (back || part.sends)) sizes.push_back(part.elements.size());
  return sizes;
}

// Every element of an owner's matrices comes once.
std::string problem_of_stack(const MatrixStack& stack) {
  std::vector<std::int64_t> times(static_cast<std::size_t>(stack.count() * stack.rows * stack.columns), 0);
  for (const OwnedPart& part : stack.parts)
    for (std::int64_t e = 0; part.sent && e < part.count; ++e) {
      const std::int64_t row = part.row + (part.first + e) / part.width,
                         column = part.column + (part.first + e) % part.width;
      if (row < 0 || row >= stack.rows || column < 0 || column >= stack.columns) return "a part beside its matrix";
      ++times[static_cast<std::size_t>((part.matrix * stack.rows + row) * stack.columns + column)];
    }
  for (const std::int64_t t : times)
    if (t != 1) return "an element comes " + std::to_string(t) + " times";
  return "";
}

// All ranks of a layout agree on what is sent to whom, and each matrix comes together once.
std::string problem_of_matrices(const Deck& deck) {
  std::map<int, RunSetup> setups;
  const int world = static_cast<int>(ranks_of(deck.mesh));
  for (int r = 0; r < world; ++r) setups.emplace(r, make_setup(deck, r));
  const MeshShape mesh = setups.at(0).mesh;
  for (int r = 0; r < world; ++r) {
    const WholeMatrices& mine = setups.at(r).share.matrices;
    std::set<std::pair<std::size_t, std::int64_t>> updated;
    for (std::size_t n = 0; n < mine.rounds.size(); ++n) {
      const MatrixRound& round = mine.rounds[n];
      const Group name = round.experts ? Group::expert_matrices : Group::matrices;
      const std::vector<int> group = ranks_of_group(mesh, name, r, groups_of(setups.at(r)));
      if (group.at(static_cast<std::size_t>(round.rank)) != r) return "another number in its group";
      for (const HeldPart& part : round.held)
        for (std::int64_t e = part.elements.begin; e < part.elements.end; ++e)
          if (!updated.insert({part.unit, e}).second) return "an element is updated twice";
      for (const MatrixStack& stack : round.stacks)
        if (const std::string problem = problem_of_stack(stack); !problem.empty()) return problem;
      for (std::size_t other = 0; other < group.size(); ++other)
        if (received(round, static_cast<int>(other), false) != sent(setups.at(group[other]), n, round.rank, false) ||
            received(round, static_cast<int>(other), true) != sent(setups.at(group[other]), n, round.rank, true))
          return "a holder and an owner speak of other parts";
    }
    std::size_t all = 0;
    const RankShare& share = setups.at(r).share;
    for (const LocalUnit& unit : share.units) {
      for (const Range& whole : kept_ranges(unit, KeptOf::whole_matrices))
        for (const ElementRun& run : runs_of(unit, whole)) all += static_cast<std::size_t>(run.count);
    }
    if (all != updated.size()) return "matrices that nobody updates";
  }
  return "";
}

TEST(MatrixOwners, EveryElementComesOnce) {
  std::vector<LayoutCase> cases;
  for (const LayoutCase& c : layouts_of(OptimizerName::muon))
    if (ranks_of(c.deck.mesh) <= 6) cases.push_back(c);
  const auto check = [](const LayoutCase& c) {
    Deck deck = c.deck;
    if (const auto rule = illegality(deck); !rule.empty()) return "is refused: " + rule;
    return problem_of_matrices(deck);
  };
  EXPECT_EQ(failures_of(cases, cases.size(), check), "");
  EXPECT_GE(cases.size(), 90u);
}

// Shapes of the matrices of one rank's model.
std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> shapes_of(Deck deck) {
  deck = one_rank(with_optimizer(deck, OptimizerName::muon));
  EXPECT_EQ(illegality(deck), "");
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> shapes;
  for (const MatrixRound& round : make_setup(deck).share.matrices.rounds)
    for (const MatrixStack& stack : round.stacks) shapes[{stack.rows, stack.columns}] += stack.count();
  return shapes;
}

// Five layers of width 24. GPT-2's q, k and v are one tensor of 72 rows; its feed-forward layer has no gate.
TEST(MatrixOwners, HaveWhatIsAMatrixOfItsOwn) {
  using Shapes = std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>;
  const auto dense = test_models();
  EXPECT_EQ(shapes_of(dense[1].deck), (Shapes{{{24, 24}, 5 * 4}, {{40, 24}, 5}, {{24, 40}, 5}}));
  EXPECT_EQ(shapes_of(dense[0].deck),
            (Shapes{{{32, 24}, 5}, {{8, 24}, 5 * 2}, {{24, 32}, 5}, {{40, 24}, 5 * 2}, {{24, 40}, 5}}));
  // Each of six experts has a gate, an up and a down; the router is a matrix, too.
  EXPECT_EQ(shapes_of(moe_models()[0].deck),
            (Shapes{{{32, 24}, 5}, {{8, 24}, 5 * 2}, {{24, 32}, 5}, {{6, 24}, 5}, {{24, 24}, 5 * 6 * 3}}));
}

}  // namespace
}  // namespace forge::test
