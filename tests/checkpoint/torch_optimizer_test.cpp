#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/torch_optimizer.hpp"
#include "comm/thread_communicator.hpp"
#include "config/family.hpp"
#include "config/optimizer_table.hpp"
#include "hf/tensor_directory.hpp"
#include "restarts.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t steps = 4, half = 2;
constexpr std::uint64_t small_files = 20000;

struct Case {
  const char* name;
  OptimizerName optimizer;
  Deck model;
  Layout wrote, reads;
  std::vector<const char*> has;  // of the file
};

std::vector<Case> cases() {
  auto dense = test_models();
  dense[0].deck.model.no_rope_every = 0;  // llama's config.json has no word for it
  auto experts = moe_models();
  experts[0].deck.model.qk_norm = true;
  experts[2].deck.model.family = Family::deepseek_v3;
  experts[2].deck.model.shared_expert_ffn = 2 * experts[2].deck.model.expert_ffn;
  return {{"llama",
           OptimizerName::adamw,
           dense[0].deck,
           {"zero 2", {1, 1, 2, 1, 1}, 2},
           {"tp 2", {1, 1, 1, 1, 2}},
           {"state.model.layers.1.self_attn.q_proj.weight.exp_avg", "state.model.norm.weight.exp_avg_sq",
            "state.lm_head.weight.step"}},
          {"gpt2",
           OptimizerName::muon,
           dense[1].deck,
           {"one rank", {1, 1, 1, 1, 1}},
           {"zero 3", {1, 1, 2, 1, 1}, 3},
           {"state.transformer.h.2.attn.c_attn.weight.momentum_buffer", "state.transformer.wte.weight.exp_avg"}},
          {"gpt2_factored",
           OptimizerName::adafactor,
           dense[1].deck,
           {"tp 2", {1, 1, 1, 1, 2}},
           {"pp 2", {2, 1, 1, 1, 1}},
           {"state.transformer.h.2.attn.c_attn.weight.row_var", "state.transformer.h.2.attn.c_attn.bias.variance"}},
          {"qwen3_next",
           OptimizerName::adamw,
           with_key_heads(dense[0].deck),
           {"tp 2", {1, 1, 1, 1, 2}},
           {"zero 3", {1, 1, 2, 1, 1}, 3},
           {"state.model.layers.0.linear_attn.in_proj_qkvz.weight.exp_avg"}},
          {"qwen3_next_factored",
           OptimizerName::adafactor,
           with_key_heads(dense[0].deck),
           {"one rank", {1, 1, 1, 1, 1}},
           {"tp 2", {1, 1, 1, 1, 2}},
           {"state.model.layers.2.linear_attn.in_proj_ba.weight.row_var"}},
          {"mixtral",
           OptimizerName::muon,
           experts[0].deck,
           {"tp 2", {1, 1, 1, 1, 2}},
           {"ep 2", {1, 1, 2, 1, 1, 2, 1}, 1},
           {"state.model.layers.0.mlp.experts.5.up_proj.weight.momentum_buffer"}},
          {"deepseek",
           OptimizerName::adafactor,
           experts[2].deck,
           {"ep 2", {1, 1, 2, 1, 1, 2, 1}},
           {"tp 2, zero 3", {1, 1, 2, 1, 2}, 3},
           {"state.model.layers.3.mlp.experts.4.down_proj.weight.col_var"}},
          {"sgd",
           OptimizerName::sgd,
           experts[2].deck,
           {"one rank", {1, 1, 1, 1, 1}},
           {"etp 2", {1, 1, 1, 1, 2, 1, 2}},
           {"state.model.norm.weight.momentum_buffer"}}};
}

Deck deck_of(const Case& c, const std::string& directory) {
  Deck deck = c.model;
  deck.train.precision = PrecisionName::fp64;
  deck.train.global_batch_sequences = 8;
  deck.train.steps = steps;
  deck.optimizer.name = c.optimizer;
  deck.optimizer.schedule = RateSchedule::constant;
  deck.checkpoint.directory = directory;
  deck.checkpoint.every_steps = half;
  return deck;
}

std::int64_t loaded(Rank<double>& rank, const std::string& from) {
  Deck deck = rank.setup.deck;
  deck.checkpoint.optimizer_from = from;
  Session<double>& session = *rank.session;
  return load_optimizer(deck, session_state(session, StateUse::read, {false, true}), session.stream(), nullptr);
}

// Parameters of a checkpoint and its optimizer's state by way of PyTorch's names are the checkpoint: a run that goes on
// with them is the one that restarts from it, to the bit.
TEST(TorchOptimizer, GoesOnAsARestartDoes) {
  const Scratch scratch;
  for (const Case& c : cases()) {
    const std::string folder = std::string(scratch.path / c.name) + "_", from = folder + "run/" + step_name(half),
                      files = folder + "files";
    trained_state(deck_of(c, folder + "run"), c.wrote, from_initial_values());
    export_optimizer(from, files, c.optimizer == OptimizerName::muon ? small_files : 1 << 30);
    const TensorFiles written = TensorFiles::open(files, "optimizer");
    for (const char* name : c.has) EXPECT_NE(written.find(name), nullptr) << name;
    const auto restarted = trained_state(deck_of(c, folder + "restarted"), c.reads, [&](Rank<double>& rank) {
      std::vector<std::string> notes;
      return rank.restart_from(from, notes);
    });
    const auto started = trained_state(deck_of(c, folder + "started"), c.reads, [&](Rank<double>& rank) {
      spoil(*rank.session);
      std::vector<std::string> notes;
      RunProgress progress = rank.restart_from(from, notes);
      for (const StateTensor& tensor : session_state(*rank.session, StateUse::read, {false, true}))
        for (const StatePiece& piece : tensor.pieces) {
          const std::vector<std::byte> wrong(bytes_of(*rank.session, tensor, piece).size(), std::byte{0xff});
          copy_to_device(rank.session->stream(), piece.data, wrong.data(), wrong.size());
          rank.session->stream().synchronize();
        }
      progress.updates = loaded(rank, files);
      return progress;
    });
    EXPECT_EQ(restarted, started) << c.name;
  }
}

// Of a matrix that the file has as (in, out), and of one expert's.
TEST(TorchOptimizer, HasValuesWhereThePyTorchParameterHasThem) {
  const Scratch scratch;
  const auto all = cases();
  const auto value = [&](const WholeState& state, const std::string& name, std::int64_t element) {
    double x = 0;
    std::memcpy(&x, state.at(name).data() + element * 8, 8);
    return x;
  };
  const auto check = [&](const Case& c, const std::string& torch, std::int64_t element, const std::string& name,
                         std::int64_t stored) {
    const std::string folder = scratch.path / c.name;
    const WholeState state = trained_state(deck_of(c, folder), c.wrote, from_initial_values());
    export_optimizer(folder + "/" + step_name(steps), folder + "/torch", 1 << 30);
    const TensorFiles files = TensorFiles::open(folder + "/torch", "optimizer");
    double x = 0;
    files.read(*files.find(torch), {&x, 1}, element);
    EXPECT_EQ(x, value(state, name, stored)) << torch;
    EXPECT_NE(x, 0.0);
  };
  // c_fc (24, 40) there, (40, 24) here; row variances there are column variances here.
  check(all[1], "state.transformer.h.1.mlp.c_fc.weight.momentum_buffer", 3 * 40 + 17, "momentum/layers.1.mlp.up",
        17 * 24 + 3);
  check(all[2], "state.transformer.h.1.mlp.c_fc.weight.row_var", 5, "second_moment_of_columns/layers.1.mlp.up", 5);
  check(all[5], "state.model.layers.0.mlp.experts.5.down_proj.weight.momentum_buffer", 7,
        "momentum/layers.0.experts.down", 5 * 24 * 24 + 7);
}

// What is not as the deck's model wants it is said at once, tensor by tensor.
TEST(TorchOptimizer, RefusesOtherFiles) {
  const Scratch scratch;
  const Case c = cases()[0];
  const std::string folder = scratch.path / "files";
  const auto refusal = [&](OptimizerName name, const std::string& from) -> std::string {
    Deck deck = deck_of(c, folder);
    deck.optimizer.name = name;
    deck.checkpoint.optimizer_from = from;
    Stream stream;
    try {
      load_optimizer(deck, {}, stream, nullptr);
    } catch (const BadInput& error) {
      return error.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(has(refusal(OptimizerName::adamw, folder), "has neither optimizer.safetensors nor"));
  trained_state(deck_of(c, folder), c.wrote, from_initial_values());
  export_optimizer(folder + "/" + step_name(steps), folder + "/torch", 1 << 30);
  EXPECT_EQ(refusal(OptimizerName::adamw, folder + "/torch"), "");
  EXPECT_TRUE(
      has(refusal(OptimizerName::sgd, folder + "/torch"), "state.model.norm.weight.momentum_buffer [24] is missing"));
  std::vector<TensorInfo> two(2);
  two[0] = {"state.model.norm.weight.exp_avg", "F64", {7}};
  two[1] = {"state.model.norm.weight.step", "F32", {}};
  write_tensor_directory({folder + "/short", "optimizer", 1 << 20}, two,
                         [&](std::size_t i) { return std::vector<std::byte>(i == 0 ? 56 : 4); });
  const std::string text = refusal(OptimizerName::adamw, folder + "/short");
  EXPECT_TRUE(has(text, "state.model.norm.weight.exp_avg [24] has shape [7]")) << text;
  EXPECT_TRUE(has(text, "state.lm_head.weight.exp_avg_sq")) << text;
  for (const OptimizerName name :
       {OptimizerName::lion, OptimizerName::schedule_free, OptimizerName::normuon, OptimizerName::soap}) {
    Deck deck = deck_of(c, folder);
    deck.optimizer.name = name;
    deck.checkpoint.model_from = deck.checkpoint.optimizer_from = folder;
    EXPECT_TRUE(has(illegality(deck), "torch.optim doesn't have")) << row_of(name).word;
  }
}

}  // namespace
}  // namespace forge::test
