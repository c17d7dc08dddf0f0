#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "comm/thread_communicator.hpp"
#include "config/fp8_recipe.hpp"
#include "config/optimizer_table.hpp"
#include "config/schedule_name.hpp"
#include "nn/units.plan.hpp"
#include "restarts.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t saved_step = 2, last_step = 4;

std::vector<Layout> dense_layouts() {
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

std::vector<Layout> moe_layouts_of_restarts() {
  return {{"one rank", {1, 1, 1, 1, 1, 1, 1}},
          {"ep 2", {1, 1, 2, 1, 1, 2, 1}},
          {"ep 3, zero 1", {1, 1, 3, 1, 1, 3, 1}, 1},
          {"ep 6, zero 3", {1, 1, 6, 1, 1, 6, 1}, 3},
          {"ep 2, edp 2, zero 3", {1, 1, 4, 1, 1, 2, 1}, 3},
          {"edp 4 without ep, zero 2", {1, 1, 4, 1, 1, 1, 1}, 2},
          {"etp 2", {1, 1, 1, 1, 2, 1, 2}},
          {"ep folded over tp", {1, 1, 1, 1, 2, 2, 1}},
          {"ep 2, etp 2 folded over tp 4", {1, 1, 1, 1, 4, 2, 2}},
          {"ep 2, etp 2, zero 1", {1, 1, 2, 1, 2, 2, 2}, 1},
          {"ep 2 with replicas, zero 2", {1, 2, 2, 1, 1, 2, 1}, 2},
          {"ep over replicas", {1, 2, 1, 1, 1, 2, 1}},
          {"ep over cp, zero 3", {1, 1, 1, 2, 1, 2, 1}, 3},
          {"ep 6 over dp and cp, folded, zero 2", {1, 1, 3, 2, 1, 6, 1}, 2},
          {"pp 2, ep 2, zero 1", {2, 1, 2, 1, 1, 2, 1}, 1},
          {"pp 2, ep 2 folded, V-shaped", {2, 1, 1, 1, 2, 2, 1}, 0, ScheduleName::zb_v, 2},
          {"interleaved, ep 3, zero 3", {2, 1, 3, 1, 1, 3, 1}, 3, ScheduleName::interleaved, 2},
          {"a layer a stage", {5, 1, 1, 1, 1, 1, 1}},
          {"pp 3 with replicas", {3, 2, 1, 1, 1, 1, 1}},
          {"all axes", {2, 1, 2, 2, 2, 2, 2}, 3}};
}

struct Case {
  const char* name;
  Deck model;
  std::vector<Layout> layouts;
};

[[maybe_unused]] Deck with_optimizer(Deck deck, OptimizerName name) {
  deck.optimizer.name = name;
  if (row_of(name).averages) deck.optimizer.schedule = RateSchedule::constant;
  if (row_of(name).rotates()) deck.optimizer.soap_basis_every_steps = 2;
  return deck;
}

// Of dense models: llama (separate output matrix, copied key heads), gpt2 (tied, learned positions, biases, dropout),
// latent attention, two depths of multi-token prediction. With experts: latent attention, groups, biases that move and
// shared experts; tied, a gate of the shared experts, jitter and capacities; multi-token prediction with experts. Two
// of them with Muon, too.
std::vector<Case> cases() {
  std::vector<Case> all;
  const auto dense = test_models(), moe = moe_models(), mtp = mtp_models();
#if defined(FORGE_VGPU)  // slow: fewer models, layouts and samples
  all.push_back({"llama", dense[0].deck, thinned(dense_layouts(), 9)});
  all.push_back({"deepseek", moe[2].deck, thinned(moe_layouts_of_restarts(), 14)});
#else
  all.push_back({"llama", dense[0].deck, dense_layouts()});
  all.push_back({"gpt2", dense[1].deck, dense_layouts()});
  all.push_back({"latent", dense[4].deck, dense_layouts()});
  all.push_back({"gpt2_mtp", mtp[1].deck, dense_layouts()});
  all.push_back({"deepseek", moe[2].deck, moe_layouts_of_restarts()});
  all.push_back({"drops", moe[3].deck, moe_layouts_of_restarts()});
  all.push_back({"deepseek_mtp", mtp[4].deck, moe_layouts_of_restarts()});
  all.push_back({"qwen3_schedule_free", with_optimizer(dense[2].deck, OptimizerName::schedule_free), dense_layouts()});
  all.push_back({"latent_muon", with_optimizer(dense[4].deck, OptimizerName::muon), dense_layouts()});
  all.push_back({"gpt2_normuon", with_optimizer(dense[1].deck, OptimizerName::normuon), dense_layouts()});
  all.push_back({"qwen2_adafactor", with_optimizer(dense[2].deck, OptimizerName::adafactor), dense_layouts()});
  all.push_back(
      {"deepseek_adafactor", with_optimizer(moe[2].deck, OptimizerName::adafactor), moe_layouts_of_restarts()});
  all.push_back({"mixtral_normuon", with_optimizer(moe[0].deck, OptimizerName::normuon), moe_layouts_of_restarts()});
  all.push_back({"gpt2_soap", with_optimizer(dense[1].deck, OptimizerName::soap), thinned(dense_layouts(), 3)});
  all.back().model.model.kv_heads = 2;  // matrices of two shapes in one tensor
  all.push_back(
      {"mixtral_soap", with_optimizer(moe[0].deck, OptimizerName::soap), thinned(moe_layouts_of_restarts(), 3)});
  all.push_back({"deepseek_muon", with_optimizer(moe[2].deck, OptimizerName::muon), moe_layouts_of_restarts()});
  // The save is in the middle of the history; with ZeRO 3 weights are gathered as codes, whichever way they were saved.
  all.push_back({"deepseek_fp8", moe[2].deck, thinned(moe_layouts_of_restarts(), 4)});
  all.back().model.train.precision = PrecisionName::fp8;
  all.back().model.train.fp8_carrier = Fp8Carrier::fp64;
  all.back().model.train.fp8_recipe = Fp8Recipe::delayed;
  all.back().model.train.fp8_history = 3;
  all.push_back({"llama_frozen", dense[0].deck, thinned(dense_layouts(), 4)});
  all.back().model.train.frozen = {"embedding.*", "layers.0.*", "layers.3.*"};
  all.push_back({"qwen2_adapters", dense[3].deck, thinned(dense_layouts(), 4)});
  all.back().model.model.adapter.name = AdapterName::lora;
  all.push_back({"deepseek_adapters", moe[2].deck, thinned(moe_layouts_of_restarts(), 4)});
  all.back().model.model.adapter.name = AdapterName::lora;
  all.back().model.model.router_bias_rate = 0;
#endif
  // Where a third of the volume is wanted, models have one third after the other of the layouts.
  for (std::size_t i = 0; i < all.size() && third_volume(); ++i)
    if (all[i].layouts.size() > 10) all[i].layouts = thinned(all[i].layouts, 1, i % 3);
  for (Case& c : all) c.model.train.global_batch_sequences = c.model.model.experts > 0 ? 12 : 16;
  return all;
}

bool in_fp8(const Deck& deck) {
  return deck.train.precision == PrecisionName::fp8;
}

[[maybe_unused]] bool trains_a_part(const Deck& deck) {
  return !deck.train.frozen.empty() || deck.model.adapter.on();
}

// How many layouts the n-th case has.
std::size_t layouts_of(const Case& c, [[maybe_unused]] std::size_t n) {
  const bool experts = c.model.model.experts > 0;
  const std::size_t all = experts ? 20 : 17;
#if defined(FORGE_VGPU)
  const std::size_t stride = experts ? 14 : 9, first = 0;
#else
  const std::size_t stride = in_fp8(c.model) || trains_a_part(c.model)  ? 4
                             : row_of(c.model.optimizer.name).rotates() ? 3
                                                                        : 1;
  const std::size_t first = stride == 1 && third_volume() ? n % 3 : 0;
#endif
  return part_of(all - first, stride);
}

class AcrossLayouts : public testing::TestWithParam<std::size_t> {
 protected:
  Deck deck_of(const Layout& layout, const std::string& directory) const {
    Deck deck = model_;
    deck.train.steps = last_step;
    if (!in_fp8(deck)) deck.train.precision = PrecisionName::fp64;
    deck.checkpoint.directory = directory;
    deck.checkpoint.every_steps = saved_step;
    deck = deck_on(deck, layout);
    deck.train.fp8_gather = in_fp8(deck) && deck.train.zero_stage == 3 && deck.mesh.dp_shard * deck.mesh.cp > 1;
    return deck;
  }
  // Trains on a layout and saves; its steps, and the path of the checkpoint of saved_step.
  std::vector<StepRecord> save_on(const Layout& layout, const std::string& directory) const {
    const Deck deck = deck_of(layout, directory);
    std::vector<StepRecord> records;
    run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
      Rank<double> rank(world, deck);
      rank.session->initialise();
      auto steps = rank.train({});
      const auto whole = whole_state(directory + "/" + step_name(last_step));
      if (const auto wrong = difference(*rank.session, whole); !wrong.empty()) throw Error("saved: " + wrong);
      if (world.rank() == 0) records = std::move(steps);
    });
    return records;
  }

  const Case case_ = cases()[GetParam()];
  const Deck model_ = case_.model;
  const Scratch scratch_;
};

// A checkpoint of every layout, loaded on every layout: all that any rank holds is bitwise what was saved, and training
// goes on with the losses of the run that wrote it.
TEST_P(AcrossLayouts, StateIsBitwiseTheSame) {
  const auto& all = case_.layouts;
  ASSERT_EQ(all.size(), layouts_of(case_, GetParam()));
  std::size_t loaded = 0;
  std::vector<std::string> paths;
  std::vector<std::vector<StepRecord>> records;
  std::vector<WholeState> whole;
  for (std::size_t a = 0; a < all.size(); ++a) {
    const std::string directory = scratch_.path / std::to_string(a);
    records.push_back(save_on(all[a], directory));
    paths.push_back(directory + "/" + step_name(saved_step));
    EXPECT_TRUE(verify_checkpoint(paths.back(), 1).empty()) << all[a].name;
    whole.push_back(whole_state(paths.back()));
    EXPECT_EQ(whole.back().contains("state/layers.2.router_bias"), model_.model.router_bias);
    EXPECT_EQ(whole.back().contains("state/fp8_history"), in_fp8(model_));
  }
  for (std::size_t b = 0; b < all.size(); ++b) {
    const Deck deck = deck_of(all[b], scratch_.path / "again");
    const std::size_t from = (7 * b + 3) % all.size();  // trained on from; the others are only loaded
    std::vector<StepRecord> steps;
    run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
      Rank<double> rank(world, deck);
      std::vector<std::string> notes;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::size_t a = (from + 1 + i) % all.size();
        spoil(*rank.session);
        const RunProgress progress = rank.restart_from(paths[a], notes);
        if (progress.step != saved_step || progress.updates != saved_step) throw Error("another step");
        if (const auto wrong = difference(*rank.session, whole[a]); !wrong.empty())
          throw Error(std::string("from ") + all[a].name + ": " + wrong);
        if (world.rank() == 0) ++loaded;
      }
      auto done = rank.train({saved_step, saved_step, 0});
      if (world.rank() == 0) steps = std::move(done);
    });
    ASSERT_EQ(steps.size(), 2u) << all[b].name;
    for (std::size_t s = 0; s < 2; ++s) {
      const StepRecord &now = steps[s], &then = records[from][saved_step + s];
      EXPECT_EQ(now.step, then.step);
      EXPECT_NEAR(now.loss, then.loss, 1e-12 * then.loss) << all[from].name << " to " << all[b].name;
      EXPECT_NEAR(now.total_loss, then.total_loss, 1e-12 * then.total_loss) << all[from].name << " to " << all[b].name;
      EXPECT_NEAR(now.grad_norm, then.grad_norm, 1e-9 * then.grad_norm) << all[from].name << " to " << all[b].name;
    }
  }
  EXPECT_EQ(loaded, all.size() * all.size());
}

INSTANTIATE_TEST_SUITE_P(Models, AcrossLayouts, testing::Range(std::size_t{0}, cases().size()),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

// A layer's experts are rows of one tensor, and each element of the model is written once.
TEST(Experts, AreOneTensorOfALayer) {
  ModelDeck model = test_models()[0].deck.model;
  model.experts = 6;
  model.experts_per_token = 2;
  model.expert_ffn = 12;
  model.first_dense_layers = 1;
  const ModelSpec spec = resolve_model(model);
  const std::vector<LocalUnit> units = whole_units(spec);
  Stream stream(1);
  const StorageKind kept{false, optimizer_state({}, DType::f32)};
  std::size_t bytes = 0;
  for (const LocalUnit& unit : units)
    for (const UnitBufferSpec& buffer : unit_buffers(unit, fp32_precision, kept)) bytes += align_up(buffer.bytes());
  Arena arena(bytes);
  const ParameterStorage<float> storage(arena, stream, units, fp32_precision, kept);
  std::map<std::string, Extents> shapes;
  std::int64_t elements = 0;
  for (const StateTensor& tensor : state_of(storage, spec.E(), StateUse::write)) {
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
