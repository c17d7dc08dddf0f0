#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "../device_values.hpp"
#include "../long_run.hpp"
#include "comm/thread_communicator.hpp"
#include "config/optimizer_table.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "cover.hpp"
#include "layout/mesh_shape.hpp"
#include "plan/memory.hpp"
#include "run_threads.hpp"
#include "train/checkpoints.hpp"
#include "train/trainer.hpp"

namespace forge::test {
namespace {

// How a rank's training ended.
struct Ending {
  ExitCode code = ExitCode::done;
  std::vector<StepRecord> records;
  bool parameters_finite = true;
  bool state_is_zero = true;  // what the optimizer keeps, and the history of FP8
};

// Whose weights are spoiled before the first step, and by what; −1: nobody's.
struct Plant {
  int rank = -1;
  double value = 0;
};

// The first element of every unit that isn't padding.
void spoil(Session<double>& session, double value) {
  const ParameterStorage<double>& storage = session.storage();
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const auto& s = storage.unit(u);
    const auto runs = runs_of(storage.local(u), s.state);
    if (runs.empty()) continue;
    const std::int64_t first = runs.front().local - s.state.begin;
    set_values(session.stream(), s.master.slice(first, first + 1), {value});
  }
}

Ending train_rank(std::unique_ptr<Communicator> world, const Deck& deck, const Plant& plant) {
  const RunSetup setup = make_setup(deck, world->rank());
  Mesh mesh(std::move(world), setup.mesh, groups_of(setup));
  const MemoryPlan plan =
      plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, RunKind::training);
  Session<double> session(setup, plan.total(), RunKind::training, mesh, 1);
  session.initialise();
  if (plant.rank == setup.rank) spoil(session, plant.value);
  session.parameters_changed();
  const TrainingData data(setup);
  Ending ending;
  try {
    Trainer<double>(session, data, 1, TrainingLog(nullptr, &ending.records)).run();
  } catch (const Error& error) {
    ending.code = error.code();
  }
  for (std::size_t u = 0; u < session.storage().size(); ++u) {
    for (const double value : values_of(session.stream(), session.storage().unit(u).master))
      ending.parameters_finite = ending.parameters_finite && std::isfinite(value);
  }
  if (const View<float, 2>& history = session.amax_history().entries; !history.empty())
    for (const float value : values_of(session.stream(), line_of(history)))
      ending.state_is_zero = ending.state_is_zero && value == 0;
  for (const StateTensor& tensor : session_state(session, StateUse::read, {false, true}))
    for (const StatePiece& piece : tensor.pieces) {
      const View<const double, 1> values(reinterpret_cast<const double*>(piece.data), {{piece.box.size()}});
      for (const double value : values_of(session.stream(), values))
        ending.state_is_zero = ending.state_is_zero && value == 0;
    }
  return ending;
}

std::vector<Ending> train_all(const Deck& deck, const Plant& plant) {
  std::vector<Ending> endings(static_cast<std::size_t>(ranks_of(deck.mesh)));
  run_ranks(static_cast<int>(endings.size()), [&](Communicator& world) {
    endings[static_cast<std::size_t>(world.rank())] = train_rank(world.duplicate(), deck, plant);
  });
  return endings;
}

// "" where every rank stopped with the code for NaN, and its last record is of step `last`.
std::string stop_difference(const std::vector<Ending>& endings, std::int64_t last) {
  for (std::size_t r = 0; r < endings.size(); ++r) {
    const Ending& e = endings[r];
    const std::string rank = "rank " + std::to_string(r) + " ";
    if (e.code != ExitCode::not_finite) return rank + "ended with " + std::to_string(static_cast<int>(e.code));
    if (e.records.empty() || e.records.size() != endings.front().records.size())
      return rank + "stopped in another step than rank 0";
    if (e.records.back().step != last) return rank + "stopped in step " + std::to_string(e.records.back().step);
    if (e.records.back().finite) return rank + "reports an update of its last step";
  }
  return "";
}

constexpr std::size_t meshes = 1 + 5 + 15 + 25;  // of 1, 2, 4, 6 ranks

std::vector<LayoutCase> layouts() {
  std::vector<LayoutCase> cases;
  for (const int ranks : {1, 2, 4, 6})
    for (LayoutCase c : drawn_layouts(ranks, 6)) {
      c.deck.train.steps = 6;
      c.deck.optimizer.warmup_steps = 0;
      if (cases.size() % 4 == 1) {  // an amax that isn't finite spoils its group on every rank
        c.deck.train.precision = PrecisionName::fp8;
        c.deck.train.fp8_carrier = Fp8Carrier::fp64;
        c.deck.train.fp8_recipe = static_cast<Fp8Recipe>(cases.size() / 4 % 4);
      }
      cases.push_back(c);
    }
  return cases;
}

std::string checked(Deck& deck) {
  const auto rule = illegality(deck);
  return rule.empty() ? "" : "is refused: " + rule;
}

// One rank's weights are spoiled: all ranks stop in step 3, the third in a row, with the weights that they had.
TEST(NotFinite, NanOnOneRankStopsAll) {
  const auto check = [](const LayoutCase& c) {
    Deck deck = c.deck;
    deck.train.max_not_finite_steps = 3;
    if (const auto text = checked(deck); !text.empty()) return text;
    const auto ranks = static_cast<std::uint64_t>(ranks_of(deck.mesh));
    const Plant plant{static_cast<int>(hash_of(text_of(deck)) % ranks), std::numeric_limits<double>::quiet_NaN()};
    return stop_difference(train_all(deck, plant), 3);
  };
  EXPECT_EQ(failures_of(thinned(layouts(), 1), part_of(meshes, 1), check), "");
}

// A step that is skipped changes nothing of what an optimizer keeps, of lines and of whole matrices neither; a step
// that isn't does.
TEST(NotFinite, LeavesNoTraceInAnyOptimizer) {
  for (const OptimizerRow& row : optimizer_table) {
    const auto name = static_cast<OptimizerName>(&row - optimizer_table.data());
    const auto check = [&](const LayoutCase& c) -> std::string {
      Deck deck = c.deck;
      deck.optimizer.name = name;
      if (row.averages) deck.optimizer.schedule = RateSchedule::constant;
      deck.train.max_not_finite_steps = 2;
      if (const auto text = checked(deck); !text.empty()) return text;
      const auto last = static_cast<int>(ranks_of(deck.mesh)) - 1;
      const auto endings = train_all(deck, {last, std::numeric_limits<double>::infinity()});
      for (const Ending& e : endings)
        if (!e.state_is_zero) return "a skipped step left something";
      bool updated = false;
      for (const Ending& e : train_all(deck, {})) updated = updated || !e.state_is_zero;
      return updated ? stop_difference(endings, 2) : "nothing is kept of steps that are not skipped";
    };
    std::vector<LayoutCase> cases = thinned(layouts(), 9);
    for (LayoutCase& c : drawn_moe_layouts(4, 6)) cases.push_back(c);
    cases = thinned(cases, 3);
    for (LayoutCase& c : cases) c.deck.train.steps = 2;
    EXPECT_EQ(failures_of(cases, cases.size(), check), "") << row.word;
    EXPECT_GE(cases.size(), third_volume() ? 2u : 5u);
  }
}

// An update that is far too large: the loss of the next step overflows everywhere at once. The weights stay finite,
// because a step with NaN or Inf does not update them.
TEST(NotFinite, DivergenceStopsAllInOneStep) {
  const auto check = [](const LayoutCase& c) -> std::string {
    Deck deck = c.deck;
    deck.optimizer.learning_rate = 1e200;
    if (const auto text = checked(deck); !text.empty()) return text;
    const auto endings = train_all(deck, {});
    for (const Ending& e : endings)
      if (!e.parameters_finite) return "NaN or Inf went into the weights";
    return stop_difference(endings, 2);
  };
  EXPECT_EQ(failures_of(thinned(layouts(), 1), part_of(meshes, 1), check), "");
}

// Gradients can overflow where the loss does not: here those of a z-loss with an absurd coefficient.
TEST(NotFinite, InfiniteNormWithAFiniteLossStopsAll) {
  const auto check = [](const LayoutCase& c) -> std::string {
    Deck deck = c.deck;
    deck.train.z_loss_coefficient = 1e200;
    if (const auto text = checked(deck); !text.empty()) return text;
    const auto endings = train_all(deck, {});
    for (const Ending& e : endings)
      if (e.records.empty() || !std::isfinite(e.records.front().loss) || std::isfinite(e.records.front().grad_norm))
        return "the loss is not finite, or the norm is";
    return stop_difference(endings, 1);
  };
  EXPECT_EQ(failures_of(thinned(layouts(), 1), part_of(meshes, 1), check), "");
}

// The same runs without a fault end well: what stops them above is the fault.
TEST(NotFinite, NothingStopsWithoutAFault) {
  const auto check = [](const LayoutCase& c) -> std::string {
    Deck deck = c.deck;
    if (const auto text = checked(deck); !text.empty()) return text;
    for (const Ending& e : train_all(deck, {}))
      if (e.code != ExitCode::done || e.records.size() != 6 || !e.parameters_finite) return "stopped";
    return "";
  };
  EXPECT_EQ(failures_of(thinned(layouts(), 1), part_of(meshes, 1), check), "");
}

}  // namespace
}  // namespace forge::test
