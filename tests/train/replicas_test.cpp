#include <gtest/gtest.h>

#include <cmath>

#include "comm/thread_communicator.hpp"
#include "config/schedule_name.hpp"
#include "rig.hpp"

namespace forge::test {
namespace {

// One rank's result, computed by every rank for itself: a world of its own is not needed, the same arithmetic is.
struct OneRank {
  std::vector<double> gradient;
  StepResult result;
};

// The same global batch as a single stream of microbatches on one rank, by a session that talks to nobody.
OneRank reference(Deck deck) {
  deck.mesh.dp_shard = 1;
  Rig<double> rig(self_communicator(), deck, RunKind::gradients);
  OneRank one;
  one.result = rig.gradients(1);
  one.gradient = rig.all_gradients();
  return one;
}

// max|g − g1| ≤ 1e-11 · max(largest entry of g1): DESIGN's bound, here over the whole model.
void expect_equal(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 0;
  for (const double x : b) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-13 * largest) << "element " << i;
}

class Replicas : public testing::TestWithParam<double> {};

// Any number of ranks and any accumulation give one rank's loss, norm and gradients.
TEST_P(Replicas, EqualOneRank) {
  Deck deck = tiny_deck();
  deck.model.dropout = GetParam();
  deck.train.z_loss_coefficient = 1e-3;
  const OneRank one = reference(deck);
  for (const std::int64_t microbatch : {1, 3, 12}) {
    deck.train.microbatch_sequences = microbatch;
    deck.mesh.dp_shard = environment->size();
    if (deck.train.global_batch_sequences % (microbatch * deck.mesh.dp_shard) != 0) continue;
    for (const ScheduleName schedule : {ScheduleName::one_f_one_b, ScheduleName::gpipe}) {
      deck.schedule.name = schedule;
      Rig<double> rig(deck);
      const StepResult result = rig.gradients(1);
      EXPECT_NEAR(result.loss, one.result.loss, 1e-13 * one.result.loss);
      EXPECT_NEAR(result.total_loss, one.result.total_loss, 1e-13 * one.result.total_loss);
      EXPECT_NEAR(result.grad_norm, one.result.grad_norm, 1e-13 * one.result.grad_norm);
      expect_equal(rig.all_gradients(), one.gradient);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dropout, Replicas, testing::Values(0.0, 0.25));

// A NaN on one rank alone is seen by all, in the same step, and nobody's parameters move.
TEST(NotFinite, AgreedAndHarmless) {
  Deck deck = tiny_deck();
  deck.mesh.dp_shard = environment->size();
  Rig<double> rig(deck);
  Optimizer<double> optimizer(rig.session.storage(), deck.optimizer, rig.session.update_tools());
  auto& storage = rig.session.storage();
  EXPECT_TRUE(rig.gradients(1).finite);
  rig.session.update_weights(optimizer, 1, {deck.optimizer, deck.train.steps, 1});
  const int last = environment->size() - 1;
  Stream& stream = rig.session.stream();
  const auto first = storage.unit(1).master.slice(0, 1);
  const std::vector<double> healthy = values_of(stream, first);
  if (environment->rank() == last) set_values(stream, first, {std::nan("")});
  std::vector<std::vector<double>> before;
  for (std::size_t u = 0; u < storage.size(); ++u) before.push_back(values_of(stream, storage.unit(u).master));
  const StepResult result = rig.gradients(2);
  EXPECT_FALSE(result.finite);
  rig.session.update_weights(optimizer, 2, {deck.optimizer, deck.train.steps, 2});
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const std::vector<double> now = values_of(stream, storage.unit(u).master);
    for (std::size_t k = 0; k < now.size(); ++k)
      EXPECT_TRUE(now[k] == before[u][k] || (std::isnan(now[k]) && std::isnan(before[u][k])));
  }
  if (environment->rank() == last) set_values(stream, first, healthy);
  EXPECT_TRUE(rig.gradients(3).finite);
}

}  // namespace
}  // namespace forge::test
