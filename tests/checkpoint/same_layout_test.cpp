#include <gtest/gtest.h>

#include "comm/thread_communicator.hpp"
#include "restarts.hpp"

namespace forge::test {
namespace {

#if defined(FORGE_VGPU)
constexpr std::int64_t steps = 5;  // an emulated device is slow
#else
constexpr std::int64_t steps = 30;
#endif

// Saves every step of a run, then goes on from each of them: the rest comes out the same to the last bit, losses and
// the whole state at the end.
template <class T>
void expect_bitwise_restarts(const Deck& model, const Layout& layout, PrecisionName precision) {
  const Scratch scratch;
  Deck deck = model;
  deck.train.precision = precision;
  deck.train.steps = steps;
  deck.optimizer.decay_steps = steps - 2;
  deck.checkpoint.directory = scratch.path / "saved";
  deck.checkpoint.every_steps = 1;
  deck = deck_on(deck, layout);
  const int ranks = static_cast<int>(ranks_of(deck.mesh));
  std::vector<StepRecord> whole_run;
  run_ranks(ranks, [&](Communicator& world) {
    Rank<T> rank(world, deck);
    rank.session->initialise();
    auto records = rank.train({});
    if (world.rank() == 0) whole_run = std::move(records);
  });
  ASSERT_EQ(whole_run.size(), static_cast<std::size_t>(steps));
  const WholeState end = whole_state(deck.checkpoint.directory + "/" + step_name(steps));
  EXPECT_NE(whole_state(deck.checkpoint.directory + "/" + step_name(1)), end) << "nothing was learnt";
  Deck again = deck;
  again.checkpoint.directory = scratch.path / "again";
  again.checkpoint.every_steps = 0;  // at the end
  int restarts = 0;
  for (std::int64_t k = 1; k < steps; ++k, ++restarts) {
    std::vector<StepRecord> rest;
    run_ranks(ranks, [&](Communicator& world) {
      Rank<T> rank(world, again);
      std::vector<std::string> notes;
      auto records = rank.train(rank.restart_from(deck.checkpoint.directory + "/" + step_name(k), notes));
      if (world.rank() == 0) rest = std::move(records);
    });
    ASSERT_EQ(rest.size(), static_cast<std::size_t>(steps - k));
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const StepRecord& then = whole_run[static_cast<std::size_t>(k) + i];
      EXPECT_EQ(rest[i].loss, then.loss) << layout.name << ", restart at " << k << ", step " << then.step;
      EXPECT_EQ(rest[i].total_loss, then.total_loss);
      EXPECT_EQ(rest[i].grad_norm, then.grad_norm);
    }
    EXPECT_EQ(whole_state(again.checkpoint.directory + "/" + step_name(steps)), end)
        << layout.name << ", restart at " << k;
  }
  EXPECT_EQ(restarts, steps - 1);
}

// One microbatch or two a step.
Deck small(Deck deck, std::int64_t sequences) {
  deck.train.global_batch_sequences = sequences;
  return deck;
}

struct Case {
  const char* name;
  Deck model;
  Layout layout;
  PrecisionName precision;
};

// Dense: tied embeddings, biases, dropout. With experts: moving biases of routers, groups, latent attention, shared
// experts; jitter, dropout and capacities.
std::vector<Case> cases() {
  const Deck gpt2 = test_models()[1].deck, deepseek = moe_models()[2].deck, drops = moe_models()[3].deck;
  Deck bf16_states = test_models()[0].deck;
  bf16_states.optimizer.moments = bf16_states.optimizer.master_weights = StateType::bf16;
  const Layout stages{"pp 2, zero 3", {2, 1, 2, 1, 1}, 3}, columns{"replicas, cp, tp, zero 2", {1, 2, 1, 2, 2}, 2},
      experts{"pp 2, ep 2, zero 1", {2, 1, 2, 1, 1, 2, 1}, 1}, all{"ep 2, etp 2, zero 1", {1, 1, 2, 1, 2, 2, 2}, 1};
  return {{"dense_fp32", small(gpt2, 4), stages, PrecisionName::fp32},
          {"dense_bf16", small(gpt2, 2), columns, PrecisionName::bf16},
          {"moe_fp32", small(deepseek, 4), experts, PrecisionName::fp32},
          {"moe_bf16", small(drops, 2), all, PrecisionName::bf16},
          {"bf16_states", small(bf16_states, 2), {"zero 3", {1, 1, 2, 1, 1}, 3}, PrecisionName::bf16}};
}

class SameLayout : public testing::TestWithParam<std::size_t> {};

TEST_P(SameLayout, EveryStepRestartsBitwise) {
  const Case c = cases()[GetParam()];
  if (c.precision == PrecisionName::bf16)
    expect_bitwise_restarts<bf16>(c.model, c.layout, c.precision);
  else
    expect_bitwise_restarts<float>(c.model, c.layout, c.precision);
}

INSTANTIATE_TEST_SUITE_P(Models, SameLayout, testing::Range(std::size_t{0}, cases().size()),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

}  // namespace
}  // namespace forge::test
