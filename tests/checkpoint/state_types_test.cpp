#include <gtest/gtest.h>

#include "checkpoint/export_hf.hpp"
#include "comm/thread_communicator.hpp"
#include "config/family.hpp"
#include "config/optimizer_table.hpp"
#include "hf/tensor_directory.hpp"
#include "restarts.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t saved_step = 2, last_step = 4;

// In bf16, with clipping left out: its coefficient comes from sums whose order a layout chooses.
Deck deck_of(OptimizerName name, const std::string& directory, StateType type) {
  Deck deck = test_models()[0].deck;
  deck.model.no_rope_every = 0;  // llama's config.json has no word for it
  deck.train.precision = PrecisionName::bf16;
  deck.train.steps = last_step;
  deck.train.global_batch_sequences = 2 * deck.train.microbatch_sequences;
  deck.optimizer.name = name;
  deck.optimizer.clip_norm = 0;
  deck.optimizer.moments = deck.optimizer.master_weights = deck.optimizer.gradients = type;
  deck.checkpoint.directory = directory;
  deck.checkpoint.every_steps = saved_step;
  return deck;
}

// Trains on a layout and saves; the state at the end. `start`: a checkpoint, or "".
WholeState trained(const Deck& model, const Layout& layout, const std::string& start = "") {
  const Deck deck = deck_on(model, layout);
  run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
    Rank<bf16> rank(world, deck);
    rank.session->initialise();
    std::vector<std::string> notes;
    rank.train(start.empty() ? RunProgress{} : rank.restart_from(start, notes));
  });
  return whole_state(deck.checkpoint.directory + "/" + step_name(last_step));
}

const Layout one{"one rank", {1, 1, 1, 1, 1}}, stages{"pp 2", {2, 1, 1, 1, 1}}, replicas{"dp 2", {1, 1, 2, 1, 1}},
    shards1{"zero 1", {1, 1, 2, 1, 1}, 1}, shards2{"zero 2", {1, 1, 2, 1, 1}, 2}, shards3{"zero 3", {1, 1, 2, 1, 1}, 3},
    columns{"tp 2, zero 3", {1, 1, 2, 1, 2}, 3};

// Where the gradients are the same to the bit, so is all that is kept: of one rank and of stages, whose units lie
// alike, and of ZeRO's stages, whose shards begin anywhere in a unit.
TEST(StateTypes, LayoutsOfOneGradientHaveOneState) {
  const Scratch scratch;
  for (const OptimizerName name : {OptimizerName::adamw, OptimizerName::muon}) {
    const std::string word = row_of(name).word;
    const auto state = [&](const Layout& layout) {
      return trained(deck_of(name, scratch.path / (word + layout.name), StateType::bf16), layout);
    };
    EXPECT_EQ(state(one), state(stages)) << word;
    const WholeState whole = state(replicas);
    for (const Layout& shards : {shards1, shards2, shards3}) EXPECT_EQ(whole, state(shards)) << word << shards.name;
  }
}

// The bytes of every tensor in the other of fp32 and bf16.
template <class From, class To>
WholeState in_other_type(const WholeState& whole) {
  WholeState other;
  for (const auto& [name, bytes] : whole) {
    std::vector<From> values(bytes.size() / sizeof(From));
    std::memcpy(static_cast<void*>(values.data()), bytes.data(), bytes.size());
    std::vector<To> result;
    for (const From value : values) result.push_back(static_cast<To>(value));
    const auto* const begin = reinterpret_cast<const std::byte*>(result.data());
    other[name] = {begin, begin + result.size() * sizeof(To)};
  }
  return other;
}

// What ranks hold behind a restart from `path` with states of that type, against `expected`.
void expect_held(StateType type, const Layout& layout, const std::string& path, const WholeState& expected) {
  const Scratch scratch;
  const Deck deck = deck_on(deck_of(OptimizerName::adamw, scratch.path, type), layout);
  run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
    Rank<bf16> rank(world, deck);
    spoil(*rank.session);
    std::vector<std::string> notes;
    const RunProgress progress = rank.restart_from(path, notes);
    if (progress.updates != saved_step) throw Error("another update");
    if (const auto wrong = difference(*rank.session, expected); !wrong.empty())
      throw Error(std::string(layout.name) + ": " + wrong);
  });
}

// From fp32 to bf16 to nearest, back without loss, on any layout; training goes on.
TEST(StateTypes, ChangeAtARestart) {
  const Scratch scratch;
  const std::string wide = scratch.path / "fp32", narrow = scratch.path / "bf16";
  trained(deck_of(OptimizerName::adamw, wide, StateType::compute_default), shards1);
  trained(deck_of(OptimizerName::adamw, narrow, StateType::bf16), columns);
  const std::string step = "/" + step_name(saved_step);
  const WholeState fp32 = whole_state(wide + step), bf16s = whole_state(narrow + step);
  EXPECT_EQ(fp32.at("second_moment/head.norm").size(), 2 * bf16s.at("second_moment/head.norm").size());
  EXPECT_EQ(fp32.at("parameters/layers.1.mlp.up").size(), 2 * bf16s.at("parameters/layers.1.mlp.up").size());
  for (const Layout& layout : {one, shards3, columns, stages}) {
    expect_held(StateType::compute_default, layout, wide + step, fp32);
    expect_held(StateType::bf16, layout, narrow + step, bf16s);
    expect_held(StateType::bf16, layout, wide + step, in_other_type<float, bf16>(fp32));
    expect_held(StateType::compute_default, layout, narrow + step, in_other_type<bf16, float>(bf16s));
  }
  const auto end = trained(deck_of(OptimizerName::adamw, scratch.path / "on", StateType::bf16), shards3, wide + step);
  EXPECT_EQ(end.at("parameters/layers.1.mlp.up").size(), bf16s.at("parameters/layers.1.mlp.up").size());
  EXPECT_NE(end.at("parameters/head.norm"), bf16s.at("parameters/head.norm"));
}

// The files of the run's last checkpoint, in fp32.
TensorFiles exported(const Deck& deck, const std::string& to) {
  export_hf(deck.checkpoint.directory + "/" + step_name(last_step), to, ExportType::fp32, std::uint64_t{1} << 30);
  return TensorFiles::open(to, "model");
}

// A checkpoint of bf16 weights is exported as it is.
TEST(StateTypes, AreExported) {
  const Scratch scratch;
  const Deck deck = deck_of(OptimizerName::adamw, scratch.path / "saved", StateType::bf16);
  const WholeState end = trained(deck, shards3);
  const TensorFiles files = exported(deck, scratch.path / "hf");
  const TensorInfo* const info = files.find("model.layers.1.mlp.up_proj.weight");
  ASSERT_NE(info, nullptr);
  const auto& stored = end.at("parameters/layers.1.mlp.up");
  std::vector<float> values(stored.size() / sizeof(bf16));
  files.read(*info, std::span<float>(values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    bf16 value;
    std::memcpy(static_cast<void*>(&value), stored.data() + i * sizeof value, sizeof value);
    ASSERT_EQ(values[i], static_cast<float>(value)) << i;
  }
}

// Gemma's files have what its norms' factors are more than 1.
TEST(StateTypes, OffsetOfNormsInExport) {
  const Scratch scratch;
  Deck deck = deck_of(OptimizerName::adamw, scratch.path / "saved", StateType::compute_default);
  for (const TestModel& model : test_models())
    if (model.deck.model.family == Family::gemma3_text) deck.model = model.deck.model;
  const WholeState end = trained(deck, shards1);
  const TensorFiles files = exported(deck, scratch.path / "hf");
  for (const auto& [name, hf] : {std::pair{"layers.1.norm1", "model.layers.1.input_layernorm.weight"},
                                 {"layers.1.norm1_behind", "model.layers.1.post_attention_layernorm.weight"},
                                 {"layers.1.norm2", "model.layers.1.pre_feedforward_layernorm.weight"},
                                 {"layers.1.norm2_behind", "model.layers.1.post_feedforward_layernorm.weight"},
                                 {"layers.1.attention.k_norm", "model.layers.1.self_attn.k_norm.weight"},
                                 {"head.norm", "model.norm.weight"}}) {
    const TensorInfo* const info = files.find(hf);
    ASSERT_NE(info, nullptr) << hf;
    const auto& stored = end.at(std::string("parameters/") + name);
    std::vector<float> values(stored.size() / sizeof(float)), factors(values.size());
    std::memcpy(factors.data(), stored.data(), stored.size());
    files.read(*info, std::span<float>(values));
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], factors[i] - 1) << hf << i;
    EXPECT_NE(values.front(), 0) << hf << " was not trained";
  }
}

// Qwen3-Next's files have the projections of gated DeltaNet by key heads: of each q, k, v and z.
TEST(StateTypes, RowsOfKeyHeadsInExport) {
  const Scratch scratch;
  Deck deck = deck_of(OptimizerName::adamw, scratch.path / "saved", StateType::compute_default);
  deck.model = with_key_heads(test_models().front().deck).model;
  deck.model.no_rope_every = 0;
  const WholeState end = trained(deck, shards1);
  const TensorFiles files = exported(deck, scratch.path / "hf");
  const TensorInfo* const info = files.find("model.layers.0.linear_attn.in_proj_qkvz.weight");
  ASSERT_NE(info, nullptr);
  ASSERT_EQ(info->shape, (std::vector<std::int64_t>{68, deck.model.width}));
  const auto& stored = end.at("parameters/layers.0.delta.qkvz");
  std::vector<float> values(stored.size() / sizeof(float)), own(values.size());
  std::memcpy(own.data(), stored.data(), stored.size());
  files.read(*info, std::span<float>(values));
  const auto first = [&](std::int64_t row) { return static_cast<std::size_t>(row * deck.model.width); };
  for (std::int64_t row = 0; row < 68; ++row) {
    const std::int64_t head = row / 34, at = row % 34;
    const std::int64_t here = at < 5    ? head * 5 + at              // q
                              : at < 10 ? 10 + head * 5 + at - 5     // k
                              : at < 22 ? 20 + head * 12 + at - 10   // v
                                        : 44 + head * 12 + at - 22;  // z
    EXPECT_EQ(values[first(row)], own[first(here)]) << row;
    EXPECT_EQ(values[first(row + 1) - 1], own[first(here + 1) - 1]) << row;
  }
}

}  // namespace
}  // namespace forge::test
