#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "../long_run.hpp"
#include "../train/rig.hpp"
#include "comm/thread_communicator.hpp"
#include "cover.hpp"
#include "run_threads.hpp"

// Sums of gradients over microbatches in bf16 (optimizer.gradients), against the same layout with sums in fp32: what
// each microbatch adds is the same in both, but for the order of sums in fp32. That a layout's gradient in bf16 with
// sums in fp32 is one rank's in fp64 within a bound is tested in precision_test.cpp.

namespace forge::test {
namespace {

// ---- sessions whose steps have the same samples

using Values = std::vector<double>;

Deck deck_of(const MeshDeck& mesh, std::int64_t zero_stage, std::int64_t microbatch, StateType gradients) {
  Deck deck = tiny_deck(PrecisionName::bf16);
  deck.mesh = mesh;
  deck.train.zero_stage = zero_stage;
  deck.train.accumulate = zero_stage >= 2 ? Accumulation::sharded : Accumulation::unsharded;
  deck.train.microbatch_sequences = microbatch;
  deck.optimizer.gradients = gradients;
  return deck;
}

// What this rank holds of the gradient of step 1's samples, with the numbers that round in step `step`.
Values gradient_of(Rig<bf16>& rig, std::int64_t step) {
  rig.gradients(step, 1);
  Values values;
  for (std::size_t u = 0; u < rig.session.storage().size(); ++u)
    rig.session.storage().unit(u).with_gradient([&](const auto& gradient) {
      for (const auto value : values_of(rig.session.stream(), gradient)) values.push_back(static_cast<double>(value));
    });
  return values;
}

struct Moments {
  double distance = 0, variance = 0, size = 0;  // Σ (mean − exact)², Σ of the elements' variances, Σ exact²
};

Moments moments_of(Rig<bf16>& rig, const Values& exact, std::int64_t steps) {
  Values sums(exact.size(), 0), squares(exact.size(), 0);
  for (std::int64_t step = 1; step <= steps; ++step) {
    const Values values = gradient_of(rig, step);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = values[i] - exact.at(i);
      sums[i] += error;
      squares[i] += error * error;
    }
  }
  Moments m;
  const auto n = static_cast<double>(steps);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    m.distance += sums[i] / n * (sums[i] / n);
    m.variance += (squares[i] - sums[i] * sums[i] / n) / (n - 1);
    m.size += exact[i] * exact[i];
  }
  return m;
}

// "" where the mean over steps that draw other numbers for the same sums is the sum in fp32. Of n draws, independent
// from step to step, Σ (mean − exact)² has the mean Σ variance / n, and that of some thousand elements is near it. To
// nearest, or with the same numbers in every step, nothing varies. A draw has a variance of p (1 − p) spacings², of p
// anywhere in 0 … 1 a sixth of one and never more than a quarter, and a spacing is 2^−8 … 2^−7 of a number.
std::string bias_problem(Communicator& world, const MeshDeck& mesh, std::int64_t zero_stage, std::int64_t microbatch) {
  constexpr std::int64_t steps = 16;
  Values exact;
  {
    Rig<bf16> rig(world.duplicate(), deck_of(mesh, zero_stage, microbatch, StateType::compute_default),
                  RunKind::gradients);
    exact = gradient_of(rig, 1);
  }
  Rig<bf16> rig(world.duplicate(), deck_of(mesh, zero_stage, microbatch, StateType::bf16), RunKind::gradients);
  const Moments m = moments_of(rig, exact, steps);
  const double ratio = m.distance / (m.variance / steps), relative = m.variance / (0x1p-16 * m.size);
  const bool once = rig.setup.microbatches == 1;
  if (ratio > 0.7 && ratio < 1.4 && relative > 1.0 / 8 && (!once || relative < 1)) return "";
  return "squares of the means are " + std::to_string(ratio) + " of what draws leave, and the variance is " +
         std::to_string(relative) + " of 2^-16 of the squares";
}

TEST(RoundedGradients, AreUnbiased) {
  struct Case {
    MeshDeck mesh;
    std::int64_t zero_stage, microbatches;
  };
  const MeshDeck one{1, 1, 1, 1, 1}, shards{1, 1, 2, 1, 1}, replicas{1, 2, 1, 1, 1};
  for (const auto& [mesh, zero_stage, microbatches] :
       {Case{one, 0, 1}, Case{one, 0, 3}, Case{one, 2, 3}, Case{shards, 0, 3}, Case{shards, 1, 3}, Case{shards, 2, 1},
        Case{shards, 3, 3}, Case{replicas, 1, 1}, Case{replicas, 2, 3}})
    run_ranks(static_cast<int>(ranks_of(mesh)),
              [&, m = mesh, zero = zero_stage, n = microbatches](Communicator& world) {
                const std::string problem = bias_problem(world, m, zero, 12 / n / (m.dp_replicate * m.dp_shard));
                if (!problem.empty())
                  throw Error("ranks " + std::to_string(ranks_of(m)) + ", zero " + std::to_string(zero) +
                              ", microbatches " + std::to_string(n) + ": " + problem);
              });
}

// A step's numbers are its own, whatever came before, and know nothing of threads.
TEST(RoundedGradients, HaveTheSameBitsAgain) {
  const Deck deck = deck_of({1, 1, 1, 1, 1}, 0, 2, StateType::bf16);
  Rig<bf16> rig(self_communicator(), deck, RunKind::gradients);
  const Values first = gradient_of(rig, 1);
  EXPECT_NE(gradient_of(rig, 2), first);
  EXPECT_EQ(gradient_of(rig, 1), first);
  for (const int threads : {2, 3}) {
    Rig<bf16> other(self_communicator(), deck, RunKind::gradients, threads);
    EXPECT_EQ(gradient_of(other, 1), first) << threads;
  }
  Deck seeded = deck;
  seeded.train.seed += 1;
  Rig<bf16> rig_of_seed(self_communicator(), seeded, RunKind::gradients);
  EXPECT_NE(gradient_of(rig_of_seed, 1), first);
}

// ---- layouts

const std::vector<int> drawn_ranks{2, 4, 8};
constexpr std::size_t stride = 4;
const std::size_t drawn = part_of(2 * (5 + 15 + 35), stride);

std::vector<LayoutCase> layouts(std::uint64_t key) {
  std::vector<LayoutCase> cases;
  for (const int ranks : drawn_ranks)
    for (const auto& list : {drawn_layouts(ranks, key), drawn_moe_layouts(ranks, key)})
      for (LayoutCase c : list) {
        c.deck.train.precision = PrecisionName::bf16;
        cases.push_back(c);
      }
  return thinned(cases, stride);
}

// Gradients with sums in fp32, and twice in bf16: of the second time every copy's deviations from the first.
struct Results {
  LayoutResult wide, narrow, again;
};
Results results_of(const Deck& deck) {
  Results r;
  Deck wide = deck, narrow = deck;
  narrow.optimizer.gradients = StateType::bf16;
  for (Deck* d : {&wide, &narrow})
    if (const auto rule = illegality(*d); !rule.empty()) throw Error("is refused: " + rule);
  r.wide = run_threads(wide, {});
  r.narrow = run_threads(narrow, {});
  RunOptions options;
  options.whole = false;
  options.one = &r.narrow;
  r.again = run_threads(narrow, options);
  return r;
}

// Memory and bytes as planned, every copy with the bits of the first run's, a norm that is that of the elements.
std::string problem_of(const Results& r) {
  for (const LayoutResult* result : {&r.wide, &r.narrow, &r.again})
    if (!result->problem.empty()) return result->problem;
  double squares = 0;
  for (const auto& [name, values] : r.narrow.gradients) {
    if (r.again.gradient_deviations.at(name).largest != 0) return name + " has other bits on a copy, or again";
    for (const double value : values) squares += value * value;
  }
  if (r.narrow.loss != r.wide.loss) return "the loss is another one";
  return std::abs(r.narrow.grad_norm - std::sqrt(squares)) <= 1e-12 * r.narrow.grad_norm ? ""
                                                                                         : "the norm is another one";
}

double spacing_of(double x) {
  return std::ldexp(1.0, std::ilogb(x) - 7);
}

// Where nothing is added twice: one of the two bf16 on either side of the sum in fp32, the farther one as often as
// chance has it, of places anywhere between the two in a quarter of all cases.
std::string not_a_neighbour(const LayoutCase& c) {
  Deck deck = c.deck;
  deck.train.global_batch_sequences = deck.train.microbatch_sequences * deck.mesh.dp_replicate * deck.mesh.dp_shard;
  deck.model.tied_embeddings = false;
  deck.schedule.name = ScheduleName::one_f_one_b;
  deck.schedule.virtual_stages = 1;
  deck.schedule.split = "even";
  const Results r = results_of(deck);
  if (auto problem = problem_of(r); !problem.empty()) return problem;
  double count = 0, farther = 0;
  for (const auto& [name, values] : r.wide.gradients)
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double exact = values[i], rounded = r.narrow.gradients.at(name)[i];
      if (exact == 0 ? rounded != 0 : std::abs(rounded - exact) >= spacing_of(exact))
        return name + ": " + std::to_string(exact) + " became " + std::to_string(rounded);
      if (rounded != static_cast<double>(bf16(rounded))) return name + " is no bf16";
      if (exact == 0) continue;
      ++count;
      farther += std::abs(rounded - exact) > spacing_of(exact) / 2;
    }
  if (std::abs(farther / count - 0.25) < 0.03) return "";
  return std::to_string(farther / count) + " of all are the farther neighbour";
}

TEST(RoundedGradients, OfOneMicrobatchAreNeighboursOnAnyLayout) {
  EXPECT_EQ(failures_of(layouts(61), drawn, not_a_neighbour), "");
}

// How often a number is rounded at most: for each microbatch once, or where it is read in other passes, too, so often;
// a table of two stages once more.
double roundings_of(const Deck& deck) {
  const auto ranks = static_cast<double>(deck.mesh.dp_replicate * deck.mesh.dp_shard * deck.train.microbatch_sequences);
  const double uses = deck.model.tied_embeddings ? 2 : 1;
  return static_cast<double>(deck.train.global_batch_sequences) / ranks * uses + (deck.model.tied_embeddings ? 1 : 0);
}

// "" where the gradient, and each tensor, differs from that with sums in fp32 by what n roundings leave: each with a
// deviation of at most half a spacing, 2^−8 of the sum so far, with independent signs; three times that. Ranks' sums
// are of parts of the microbatches, which together are as long as their sum, where they are independent.
std::string beyond_rounding(const LayoutCase& c) {
  Deck deck = c.deck;
  const Results r = results_of(deck);
  if (auto problem = problem_of(r); !problem.empty()) return problem;
  if (const auto rule = illegality(deck); !rule.empty()) return rule;
  const double bound = 3 * 0x1p-8 * std::sqrt(roundings_of(deck));
  double all = 0, apart = 0, elements = 0;
  for (const auto& [name, values] : r.wide.gradients) {
    elements += static_cast<double>(values.size());
    for (const double value : values) all += value * value;
  }
  for (const auto& [name, values] : r.wide.gradients) {
    double squares = 0, errors = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = r.narrow.gradients.at(name)[i] - values[i];
      errors += error * error;
      squares += values[i] * values[i];
    }
    apart += errors;
    const double scale = std::max(squares, all / elements * static_cast<double>(values.size()));
    if (const double error = std::sqrt(errors / scale); error > bound)
      return name + " is " + std::to_string(error) + " apart, and the bound is " + std::to_string(bound);
  }
  const double error = std::sqrt(apart / all);
  if (error > 0x1p-8 / 3 && error <= bound) return "";  // the last rounding alone: sqrt(1 / 6) of 2^−8, or more
  return "the gradient is " + std::to_string(error) + " apart, and the bound is " + std::to_string(bound);
}

TEST(RoundedGradients, OfManyMicrobatchesAreWithinRoundingOnAnyLayout) {
  std::vector<LayoutCase> cases = layouts(62);
  for (LayoutCase& c : cases) c.deck.train.global_batch_sequences *= 2;
  EXPECT_EQ(failures_of(cases, drawn, beyond_rounding), "");
}

}  // namespace
}  // namespace forge::test
