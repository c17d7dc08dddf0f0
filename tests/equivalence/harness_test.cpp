#include <gtest/gtest.h>

#include <cmath>

#include "models.hpp"
#include "run_threads.hpp"

// The comparisons that the other tests rest on can fail.

namespace forge::test {
namespace {

class Harness : public testing::Test {
 protected:
  Harness() {
    deck_ = test_models().front().deck;
    deck_.mesh.dp_shard = 2;
    deck_.train.zero_stage = 3;
    EXPECT_EQ(illegality(deck_), "");
    one_ = references_.of(deck_, 0);
    RunOptions options;
    options.one = &one_;
    result_ = run_threads(deck_, options);
  }

  Deck deck_;
  References references_;
  LayoutResult one_, result_;
};

TEST_F(Harness, AcceptsWhatIsEqual) {
  EXPECT_EQ(difference(result_, one_, 1), "");
  EXPECT_EQ(difference(one_, one_, 1), "");
  EXPECT_EQ(triviality(one_, one_rank(deck_)), "");
  EXPECT_FALSE(result_.gradients.empty());
  EXPECT_EQ(result_.gradients.size(), result_.gradient_deviations.size());
}

TEST_F(Harness, SeesEveryNumber) {
  const double nan = std::nan("");
  for (double LayoutResult::*number : {&LayoutResult::loss, &LayoutResult::total_loss, &LayoutResult::grad_norm}) {
    LayoutResult changed = result_;
    changed.*number *= 1 + 1e-10;
    EXPECT_NE(difference(changed, one_, 1), "");
    changed.*number = nan;
    EXPECT_NE(difference(changed, one_, 1), "");
  }
  LayoutResult changed = result_;
  changed.problem = "something";
  EXPECT_NE(difference(changed, one_, 1), "");
}

TEST_F(Harness, SeesEveryTensor) {
  for (const auto& [name, values] : one_.gradients) {
    for (const double wrong : {values.back() + 1e-3, std::nan("")}) {
      LayoutResult changed = result_;
      changed.gradients[name].back() = wrong;
      EXPECT_NE(difference(changed, one_, 1), "") << name;
    }
    LayoutResult missing = result_, shorter = result_, far = result_, nobody = result_;
    missing.gradients.erase(name);
    EXPECT_NE(difference(missing, one_, 1), "") << name;
    shorter.gradients[name].pop_back();
    EXPECT_NE(difference(shorter, one_, 1), "") << name;
    far.gradient_deviations[name].largest = HUGE_VAL;
    EXPECT_NE(difference(far, one_, 1), "") << name;
    nobody.gradient_deviations[name].owned -= 1;
    EXPECT_NE(difference(nobody, one_, 1), "") << name;
  }
  LayoutResult empty = result_;
  empty.gradients.clear();
  empty.gradient_deviations.clear();
  EXPECT_NE(difference(empty, one_, 1), "");
}

// What ranks hold is compared in place: a wrong reference is seen without any whole tensor of the result.
TEST_F(Harness, ComparesEveryRanksPart) {
  for (auto& [name, values] : one_.gradients) {
    LayoutResult changed = one_;
    changed.gradients[name].front() += 1e-3;
    RunOptions options;
    options.whole = false;
    options.one = &changed;
    EXPECT_NE(difference(run_threads(deck_, options), changed, 1).find(name), std::string::npos) << name;
  }
}

TEST_F(Harness, RanksMustAgree) {
  LayoutResult other = result_;
  other.loss = std::nextafter(other.loss, 100.0);
  EXPECT_NE(merged({result_, other}).problem, "");
  other = result_;
  other.problem = "memory";
  EXPECT_NE(merged({result_, other}).problem, "");
}

TEST_F(Harness, ReferencesMustBeWorthComparingWith) {
  const Deck deck = one_rank(deck_);
  LayoutResult zero = one_, norm = one_, few = one_, loss = one_;
  for (double& v : zero.gradients.begin()->second) v = 0;
  EXPECT_NE(triviality(zero, deck), "");
  norm.grad_norm *= 1.001;
  EXPECT_NE(triviality(norm, deck), "");
  few.gradients.erase(few.gradients.begin());
  EXPECT_NE(triviality(few, deck), "");
  loss.loss = 0;
  EXPECT_NE(triviality(loss, deck), "");
}

TEST_F(Harness, SeesEveryStepOfTraining) {
  LayoutResult one = one_;
  one.losses = one.total_losses = one.norms = {3, 2, 1};
  one.parameters = one.gradients;
  one.validation_loss = 2;
  EXPECT_EQ(training_difference(one, one, 1e-9), "");
  for (std::size_t i = 0; i < 3; ++i) {
    LayoutResult loss = one, norm = one;
    loss.losses[i] += 1e-7;
    norm.norms[i] += 1e-7;
    EXPECT_NE(training_difference(loss, one, 1e-9), "");
    EXPECT_NE(training_difference(norm, one, 1e-9), "");
  }
  LayoutResult shorter = one, validation = one, parameters = one;
  shorter.losses.pop_back();
  EXPECT_NE(training_difference(shorter, one, 1e-9), "");
  validation.validation_loss += 1e-7;
  EXPECT_NE(training_difference(validation, one, 1e-9), "");
  parameters.parameters.begin()->second.front() += 1e-3;
  EXPECT_NE(training_difference(parameters, one, 1e-9), "");
}

TEST(HarnessCases, FailuresAreReported) {
  const std::vector<LayoutCase> cases{{"a", test_models().front().deck}, {"b", test_models().front().deck}};
  const auto well = [](const LayoutCase&) { return std::string(); };
  EXPECT_EQ(failures_of(cases, 2, well), "");
  EXPECT_NE(failures_of(cases, 3, well), "");
  EXPECT_NE(failures_of({}, 2, well), "");
  EXPECT_NE(failures_of(cases, 2, [](const LayoutCase& c) { return c.name == "b" ? "wrong" : ""; }), "");
  EXPECT_NE(failures_of(cases, 2, [](const LayoutCase&) -> std::string { throw std::runtime_error("x"); }), "");
  Deck refused = test_models().front().deck;
  refused.mesh.tp = 3;
  References references;
  EXPECT_NE(equals_one_rank(refused, references), "");
}

}  // namespace
}  // namespace forge::test
