#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "config/family.hpp"
#include "device/device_memory.hpp"
#include "plan/allowance.hpp"
#include "rig.hpp"

// Each test in processes of its own (CMakeLists.txt): a process has one mark of resident memory. The plan with the
// allowance for libraries, against what the system gives each rank; tests/app/quickstart.sh does it for one rank.

namespace forge::test {
namespace {

// A model of four hundred million bytes a rank: of parameters, gradients and moments, and of activations.
Deck wide_deck() {
  Deck d = tiny_deck(PrecisionName::fp32);
  d.model.layers = 8;
  d.model.width = 1024;
  d.model.heads = 8;
  d.model.kv_heads = 8;
  d.model.head_dim = 128;
  d.model.ffn = 2816;
  d.model.vocabulary = 1024;
  d.model.initial_std = 0.02;
  d.train.sequence_tokens = 32;
  d.train.global_batch_sequences = 8;
  return d;
}

void expect_plan_is_resident(const Deck& deck) {
  Rig<float> rig(deck);
  Optimizer<float> optimizer(rig.session.storage(), deck.optimizer, rig.session.update_tools());
  for (std::int64_t s = 1; s <= 2; ++s) {
    EXPECT_TRUE(rig.gradients(s).finite);
    rig.session.update_weights(optimizer, s, {deck.optimizer, deck.train.steps, s});
    rig.session.parameters_changed();
  }
  rig.session.stream().synchronize();
  const auto planned = static_cast<double>(rig.plan.total() + process_allowance().bytes);
  EXPECT_EQ(rig.session.arena().high_water(), rig.plan.total());
  EXPECT_GT(planned, 10.0 * static_cast<double>(process_allowance().bytes));
  const auto resident = static_cast<double>(host_memory().peak);
  EXPECT_LE(std::abs(resident / planned - 1), 0.03)
      << "rank " << environment->rank() << ": resident " << resident << " B, planned " << planned << " B";
  std::printf("rank %d: planned %.0f B with the allowance, resident %+.2f %%\n", environment->rank(), planned,
              100 * (resident / planned - 1));
}

TEST(Resident, PipelineStages) {
  Deck deck = wide_deck();
  deck.mesh.pp = 4;
  deck.mesh.dp_shard = 1;
  expect_plan_is_resident(deck);
}

TEST(Resident, Zero3) {
  Deck deck = wide_deck();
  deck.mesh.dp_shard = 4;
  deck.train.zero_stage = 3;
  expect_plan_is_resident(deck);
}

TEST(Resident, Experts) {
  Deck deck = wide_deck();
  deck.model.layers = 3;
  deck.model.family = Family::qwen3_moe;
  deck.model.experts = 8;
  deck.model.experts_per_token = 2;
  deck.model.expert_ffn = 1408;
  deck.mesh.dp_shard = 4;
  deck.mesh.ep = 4;
  deck.train.zero_stage = 1;
  expect_plan_is_resident(deck);
}

}  // namespace
}  // namespace forge::test
