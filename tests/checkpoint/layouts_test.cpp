#include <gtest/gtest.h>

#include <mutex>

#include "comm/thread_communicator.hpp"
#include "config/write.hpp"
#include "core/bytes.hpp"
#include "layout_run.hpp"
#include "models.hpp"
#include "plan/memory.hpp"
#include "run_threads.hpp"
#include "sample.hpp"
#include "train/restart.hpp"
#include "train/trainer.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t saved_step = 2, last_step = 4;

// Whole tensors of a checkpoint, as bytes.
std::map<std::string, std::vector<std::byte>> whole_tensors(const std::string& path) {
  CheckpointFiles files(path);
  Stream stream(1);
  std::map<std::string, std::vector<std::byte>> whole;
  std::vector<StateTensor> tensors;
  for (const StoredTensor& t : files.manifest().tensors) {
    auto& bytes = whole[t.name];
    bytes.resize(static_cast<std::size_t>(element_count(t.shape)) * size_of(t.type));
    tensors.push_back({t.name, t.type, t.shape, 0, {{{Extents(t.shape.size(), 0), t.shape}, bytes.data()}}});
  }
  files.read(tensors, stream);
  return whole;
}

// "" where all that a rank holds, copies included, is what the whole tensors have.
template <class T>
std::string difference(Session<T>& session, const std::map<std::string, std::vector<std::byte>>& whole) {
  session.stream().synchronize();
  std::int64_t compared = 0;
  for (const StateTensor& tensor : session_state(session, StateUse::read)) {
    const auto found = whole.find(tensor.name);
    if (found == whole.end()) return tensor.name + " is not in the checkpoint";
    const Box all{Extents(tensor.shape.size(), 0), tensor.shape};
    for (const StatePiece& piece : tensor.pieces) {
      std::vector<std::byte> expected(static_cast<std::size_t>(piece.box.size()) * size_of(tensor.type));
      copy_part(piece.box, all, found->second.data(), piece.box, expected.data(), size_of(tensor.type));
      if (std::memcmp(expected.data(), piece.data, expected.size()) != 0) return tensor.name + " has other values";
      compared += piece.box.size();
    }
  }
  return compared > 0 ? "" : "nothing compared";
}

// A rank's session and data, without initial values.
template <class T>
struct Rank {
  RunSetup setup;
  Mesh mesh;
  TrainingData data;
  std::unique_ptr<Session<T>> session;

  Rank(Communicator& world, const Deck& deck)
      : setup(make_setup(deck, world.rank())), mesh(world.duplicate(), setup.mesh, groups_of(setup)), data(setup) {
    const MemoryPlan plan =
        plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, RunKind::training);
    session = std::make_unique<Session<T>>(setup, plan.total(), StorageKind{true, true}, mesh, 1);
  }
  std::vector<StepRecord> train(const RunProgress& start) {
    std::vector<StepRecord> records;
    const TrainingLog log(nullptr, &records);
    Checkpoints<T> checkpoints(*session, {write_deck(setup.deck), "test", data_fingerprint(data.training)}, log);
    Trainer<T>(*session, data, 1, log, start, &checkpoints).run();
    return records;
  }
  RunProgress restart_from(const std::string& path, std::vector<std::string>& notes) {
    return restart(*session, setup.deck, {path}, data_fingerprint(data.training), notes);
  }
};

struct Layout {
  const char* name;
  MeshDeck mesh;
  std::int64_t zero_stage = 0;
  ScheduleName schedule = ScheduleName::one_f_one_b;
  std::int64_t chunks = 1;
};

std::vector<Layout> layouts() {
  return {{"one rank", {1, 1, 1, 1, 1}},
          {"tp 2", {1, 1, 1, 1, 2}},
          {"tp 8, key heads copied", {1, 1, 1, 1, 8}},
          {"zero 1", {1, 1, 2, 1, 1}, 1},
          {"zero 3", {1, 1, 4, 1, 1}, 3},
          {"zero 2 with replicas", {1, 2, 2, 1, 1}, 2},
          {"zero 3 over cp", {1, 1, 1, 2, 1}, 3},
          {"pp 2", {2, 1, 1, 1, 1}},
          {"pp 4", {4, 1, 1, 1, 1}, 0, ScheduleName::gpipe},
          {"pp, tp, zero 3", {2, 1, 2, 1, 2}, 3},
          {"pp, replicas, tp", {2, 2, 1, 1, 2}},
          {"cp, tp, zero 1", {1, 1, 2, 2, 2}, 1},
          {"replicas", {1, 4, 1, 1, 1}},
          {"replicas, cp, tp, zero 2", {1, 2, 1, 2, 2}, 2},
          {"a layer a stage", {5, 1, 1, 1, 1}},
          {"interleaved, zero 1", {2, 1, 2, 1, 1}, 1, ScheduleName::interleaved, 2},
          {"V-shaped", {2, 1, 1, 1, 2}, 0, ScheduleName::zb_v, 2}};
}

Deck deck_of(const Deck& model, const Layout& layout, const std::string& directory, PrecisionName precision) {
  Deck deck = model;
  deck.mesh = layout.mesh;
  deck.train.zero_stage = layout.zero_stage;
  deck.schedule.name = layout.schedule;
  deck.schedule.chunks_per_stage = layout.chunks;
  deck.train.steps = last_step;
  deck.train.precision = precision;
  deck.checkpoint.directory = directory;
  deck.checkpoint.every_steps = saved_step;
  const std::string rule = illegality(deck);
  if (!rule.empty()) throw Error(std::string(layout.name) + ": " + rule);
  return deck;
}

class AcrossLayouts : public testing::TestWithParam<std::size_t> {};

// A checkpoint of every layout, loaded on every layout: all that any rank holds is bitwise what was saved, and training
// goes on with the losses of the run that wrote it.
TEST_P(AcrossLayouts, StateIsBitwiseTheSame) {
  const Deck model = test_models()[GetParam()].deck;
  const Scratch scratch;
  const auto all = layouts();
  std::vector<std::string> paths;
  std::vector<std::vector<StepRecord>> records(all.size());
  for (std::size_t a = 0; a < all.size(); ++a) {
    const std::string directory = scratch.path / std::to_string(a);
    const Deck deck = deck_of(model, all[a], directory, PrecisionName::fp64);
    run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
      Rank<double> rank(world, deck);
      rank.session->initialise();
      auto steps = rank.train({});
      const auto whole = whole_tensors(directory + "/" + step_name(last_step));
      if (const auto wrong = difference(*rank.session, whole); !wrong.empty()) throw Error("saved: " + wrong);
      if (world.rank() == 0) records[a] = std::move(steps);
    });
    EXPECT_TRUE(verify_checkpoint(directory + "/" + step_name(saved_step), 1).empty()) << all[a].name;
    paths.push_back(directory + "/" + step_name(saved_step));
  }
  std::vector<std::map<std::string, std::vector<std::byte>>> whole;
  for (const std::string& path : paths) whole.push_back(whole_tensors(path));
  for (std::size_t b = 0; b < all.size(); ++b) {
    const Deck deck = deck_of(model, all[b], scratch.path / "again", PrecisionName::fp64);
    const std::size_t from = (7 * b + 3) % all.size();  // trained on from; the others are only loaded
    std::vector<StepRecord> steps;
    run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
      Rank<double> rank(world, deck);
      std::vector<std::string> notes;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::size_t a = (from + 1 + i) % all.size();
        const RunProgress progress = rank.restart_from(paths[a], notes);
        if (progress.step != saved_step || progress.updates != saved_step) throw Error("another step");
        if (const auto wrong = difference(*rank.session, whole[a]); !wrong.empty())
          throw Error(std::string("from ") + all[a].name + ": " + wrong);
      }
      auto done = rank.train({saved_step, saved_step, 0});
      if (world.rank() == 0) steps = std::move(done);
    });
    ASSERT_EQ(steps.size(), 2u) << all[b].name;
    for (std::size_t s = 0; s < 2; ++s) {
      const StepRecord &now = steps[s], &then = records[from][saved_step + s];
      EXPECT_EQ(now.step, then.step);
      EXPECT_NEAR(now.loss, then.loss, 1e-12 * then.loss) << all[from].name << " to " << all[b].name;
      EXPECT_NEAR(now.grad_norm, then.grad_norm, 1e-9 * then.grad_norm) << all[from].name << " to " << all[b].name;
    }
  }
}

// llama (separate output matrix, copied key heads), gpt2 (tied, learned positions, biases, dropout).
INSTANTIATE_TEST_SUITE_P(Models, AcrossLayouts, testing::Values(0, 1));

class SameLayout : public testing::TestWithParam<PrecisionName> {};

template <class T>
void expect_bitwise_restarts(const Deck& model, const Layout& layout, PrecisionName precision) {
  const Scratch scratch;
  Deck deck = deck_of(model, layout, scratch.path / "saved", precision);
  deck.train.steps = 8;
  deck.optimizer.decay_steps = 7;
  deck.checkpoint.every_steps = 1;
  const int ranks = static_cast<int>(ranks_of(deck.mesh));
  std::vector<StepRecord> whole_run;
  run_ranks(ranks, [&](Communicator& world) {
    Rank<T> rank(world, deck);
    rank.session->initialise();
    auto steps = rank.train({});
    if (world.rank() == 0) whole_run = std::move(steps);
  });
  ASSERT_EQ(whole_run.size(), 8u);
  const std::string last = "/" + step_name(8);
  for (std::int64_t k = 1; k < 8; ++k) {
    Deck again = deck;
    again.checkpoint.directory = scratch.path / "again";
    std::vector<StepRecord> rest;
    run_ranks(ranks, [&](Communicator& world) {
      Rank<T> rank(world, again);
      std::vector<std::string> notes;
      const RunProgress progress = rank.restart_from(deck.checkpoint.directory + "/" + step_name(k), notes);
      auto steps = rank.train(progress);
      if (world.rank() == 0) rest = std::move(steps);
    });
    ASSERT_EQ(rest.size(), static_cast<std::size_t>(8 - k));
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const StepRecord& then = whole_run[static_cast<std::size_t>(k) + i];
      EXPECT_EQ(rest[i].loss, then.loss) << layout.name << ", restart at " << k << ", step " << then.step;
      EXPECT_EQ(rest[i].total_loss, then.total_loss);
      EXPECT_EQ(rest[i].grad_norm, then.grad_norm);
    }
    EXPECT_EQ(whole_tensors(again.checkpoint.directory + last), whole_tensors(deck.checkpoint.directory + last))
        << layout.name << ", restart at " << k;
  }
}

// From any step of a run, the rest of it comes out the same to the last bit.
TEST_P(SameLayout, RestartIsBitwiseTheSame) {
  const Deck gpt2 = test_models()[1].deck;
  for (const Layout& layout : {layouts()[0], layouts()[9], layouts()[13]}) {
    if (GetParam() == PrecisionName::bf16)
      expect_bitwise_restarts<bf16>(gpt2, layout, GetParam());
    else
      expect_bitwise_restarts<float>(gpt2, layout, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, SameLayout, testing::Values(PrecisionName::fp32, PrecisionName::bf16));

// bf16 moments are part of the state, too.
TEST(SameLayout, Bf16Moments) {
  Deck deck = test_models()[0].deck;
  deck.optimizer.moments = MomentType::bf16;
  expect_bitwise_restarts<bf16>(deck, layouts()[4], PrecisionName::bf16);
}

// A layer's experts are rows of one tensor, and each element of the model is written once.
TEST(Experts, AreOneTensorOfALayer) {
  ModelDeck model = test_models()[0].deck.model;
  model.experts = 6;
  model.experts_per_token = 2;
  model.expert_ffn = 12;
  model.first_dense_layers = 1;
  const ModelSpec spec = resolve_model(model);
  RankShare share;
  share.units = whole_units(spec);
  share.counts.assign(share.units.size(), 1);
  share.twin.assign(share.units.size(), 0);
  share.replicas = {1, 1};
  Stream stream(1);
  std::size_t bytes = 0;
  for (const LocalUnit& unit : share.units)
    for (const UnitBufferSpec& buffer : unit_buffers(unit, fp32_precision, {}, {false, true}))
      bytes += align_up(buffer.bytes());
  Arena arena(bytes);
  const ParameterStorage<float> storage(arena, stream, share.units, fp32_precision, {}, {false, true});
  std::map<std::string, Extents> shapes;
  std::int64_t elements = 0;
  for (const StateTensor& tensor : state_of(storage, share, spec.E(), StateUse::write)) {
    shapes[tensor.name] = tensor.shape;
    std::int64_t of_tensor = 0;
    for (const StatePiece& piece : tensor.pieces) of_tensor += piece.box.size();
    EXPECT_EQ(of_tensor, element_count(tensor.shape)) << tensor.name;
    elements += of_tensor;
  }
  EXPECT_EQ(elements, 3 * parameter_count(parameter_units(spec)));
  EXPECT_EQ(shapes["parameters/layers.1.experts.gate"], (Extents{6, 12, 24}));
  EXPECT_EQ(shapes["second_moment/layers.4.experts.down"], (Extents{6, 24, 12}));
  EXPECT_FALSE(shapes.contains("parameters/layers.0.experts.gate"));
}

}  // namespace
}  // namespace forge::test
