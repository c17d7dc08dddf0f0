#include <array>

#include "config/family.hpp"
#include "config/optimizer_table.hpp"
#include "config/schedule_name.hpp"
#include "config/write_deck.hpp"
#include "schedule/check_deck.hpp"
#include "small_deck.hpp"

// Everything that a deck is held against, as check_deck reports it.

namespace forge {
namespace {

using test::checked;
using test::expect_bad_input;
using test::expect_refused;
using test::small_deck;

TEST(Check, ResolvesWhatIsDerived) {
  const Deck deck = checked([](Deck& d) { d.optimizer.warmup_steps = 3; }, 4);
  EXPECT_EQ(deck.model.kv_heads, 4);
  EXPECT_EQ(deck.model.head_dim, 8);
  EXPECT_EQ(deck.mesh.dp_shard, 4);
  EXPECT_EQ(deck.mesh.etp, 1);
  EXPECT_EQ(deck.optimizer.decay_steps, 7);
}

// A resolved deck is one that a person could have written: it passes, and stays as it is.
TEST(Check, IsIdempotent) {
  const Deck once = checked([](Deck& d) { d.mesh.dp_replicate = 2; }, 4);
  Deck twice = read_deck(write_deck(once), "deck.yaml", {});
  check_deck(twice, 4);
  EXPECT_EQ(test::difference(once, twice), "");
  EXPECT_EQ(once.mesh.dp_shard, 2);
}

TEST(Check, World) {
  expect_refused([](Deck& d) { d.mesh.dp_shard = 32, d.train.global_batch_sequences = 64; },
                 {"world is 1 rank;", "dp_shard 32", "= 32", "mpirun -n 32", "srun --ntasks=32", "--ranks 32",
                  "set mesh.dp_shard to 1"});
  expect_refused([](Deck& d) { d.mesh.dp_shard = 1; }, {"world is 4 ranks", "= 1", "mesh.dp_shard to 4 or -1"}, 4);
  expect_refused([](Deck& d) { d.mesh.dp_replicate = 2; }, {"world of 3 ranks", "dp_replicate 2", "2 or 4"}, 3);
  expect_refused([](Deck& d) { d.mesh.dp_replicate = 4; },
                 {"world of 1 rank;", "nearest legal numbers of ranks: 4", "mpirun -n 4"});
  expect_refused([](Deck& d) { d.mesh.dp_shard = 0; }, {"mesh.dp_shard", "at least 1, or -1"});
}

TEST(Check, HugeMeshesDoNotOverflow) {
  expect_refused(
      [](Deck& d) {
        d.mesh.pp = d.mesh.dp_replicate = d.mesh.dp_shard = d.mesh.cp = d.mesh.tp = std::int64_t{1} << 20;
      },
      {"world is 1 rank"});
}

TEST(Check, Batch) {
  expect_refused([](Deck& d) { d.train.global_batch_sequences = 10; },
                 {"global_batch_sequences = 10", "microbatch_sequences = 2", "data-parallel size 2 = 4", "8 or 12"}, 2);
  expect_refused([](Deck& d) { d.train.global_batch_sequences = 1; }, {"nearest legal: 2"});
}

TEST(Check, Heads) {
  expect_refused([](Deck& d) { d.model.heads = 6, d.model.width = 36, d.model.kv_heads = 4; },
                 {"model.heads = 6", "model.kv_heads = 4", "3 or 6"});
  expect_refused([](Deck& d) { d.model.heads = 5; }, {"model.width = 32", "model.heads = 5", "30 or 35"});
  expect_refused([](Deck& d) { d.model.head_dim = 7; }, {"model.head_dim = 7", "6 or 8", "learned"});
  EXPECT_EQ(checked([](Deck& d) { d.model.heads = 5, d.model.head_dim = 6; }).model.head_dim, 6);
}

TEST(Check, Positions) {
  const auto learned = [](std::int64_t rows) {
    return [rows](Deck& d) { d.model.positions = PositionKind::learned, d.model.max_positions = rows; };
  };
  expect_refused(learned(15), {"model.max_positions = 15", "train.sequence_tokens = 16"});
  EXPECT_EQ(checked(learned(16)).model.max_positions, 16);
  expect_refused([](Deck& d) { d.model.rope_factor = 2; }, {"model.rope_factor = 2", "rope_scaling = none"});
  expect_refused([](Deck& d) { d.model.rope_scaling = RopeScaling::yarn; }, {"rope_original_positions = 0"});
  expect_refused(
      [](Deck& d) {
        d.model.rope_scaling = RopeScaling::llama3;
        d.model.rope_original_positions = 8;
        d.model.rope_low_frequency_factor = 4;
      },
      {"rope_high_frequency_factor = 4", "more than"});
}

TEST(Check, EpsilonsAreAboveZeroInFp32) {
  const auto tiny = [](PrecisionName precision, double ModelDeck::*key) {
    return [=](Deck& d) { d.train.precision = precision, d.model.*key = 1e-39; };
  };
  for (const auto& [key, name] : {std::pair{&ModelDeck::norm_epsilon, "model.norm_epsilon = 1e-39 is below"},
                                  {&ModelDeck::latent_norm_epsilon, "model.latent_norm_epsilon = 1e-39 is below"}})
    expect_refused(tiny(PrecisionName::bf16, key), {name, "at least 1.2e-38"});
  EXPECT_NO_THROW(checked(tiny(PrecisionName::fp64, &ModelDeck::norm_epsilon)));
  expect_refused([](Deck& d) { d.optimizer.epsilon = 1e-50; }, {"optimizer.epsilon = 1e-50 is below"});
}

TEST(Check, WindowAndFamily) {
  expect_refused([](Deck& d) { d.model.sliding_window_layer = 1; }, {"sliding_window_layer = 1", "no effect"});
  expect_refused([](Deck& d) { d.model.sliding_window = 4, d.model.sliding_window_layer = 2; },
                 {"less than model.layers = 2"});
  expect_refused([](Deck& d) { d.model.family = Family::gpt2; }, {"swiglu", "gpt2", "gelu"});
  expect_refused([](Deck& d) { d.model.load_weights = true; }, {"load_weights", "model.hf"});
  expect_refused([](Deck& d) { d.model.new_rows = NewRows::noise; },
                 {"model.new_rows = noise without weights of model.hf", "legal: none"});
  expect_refused([](Deck& d) { d.output.save_hf = true, d.model.norm = NormKind::layernorm; },
                 {"output.save_hf", "family llama", "norm must be rmsnorm"});
}

TEST(Check, Optimizer) {
  EXPECT_NO_THROW(checked([](Deck& d) { d.optimizer.warmup_steps = 11; })) << "a run that is cut short";
  EXPECT_NO_THROW(checked([](Deck& d) {
    d.optimizer.schedule = RateSchedule::wsd, d.optimizer.warmup_steps = 4, d.optimizer.decay_steps = 7;
  }));
  EXPECT_NO_THROW(checked([](Deck& d) { d.optimizer.cooldown_from = d.train.steps; }));
  expect_refused([](Deck& d) { d.optimizer.min_ratio = 1.5; }, {"optimizer.min_ratio = 1.5", "<= 1"});
  // Keys of other optimizers.
  expect_refused([](Deck& d) { d.optimizer.momentum = 0.5; },
                 {"optimizer.momentum = 0.5 with optimizer.name = adamw", "legal: 0.9, or optimizer.name sgd"});
  expect_refused([](Deck& d) { d.optimizer.name = OptimizerName::lion, d.optimizer.epsilon = 1e-6; },
                 {"optimizer.epsilon = 1e-06", "lion", "legal: 1e-08, or optimizer.name adamw | schedule_free | muon"});
  expect_refused([](Deck& d) { d.optimizer.adam_learning_rate = 1e-3; }, {"adam_learning_rate", "muon"});
  expect_refused([](Deck& d) { d.optimizer.name = OptimizerName::schedule_free; },
                 {"optimizer.schedule = cosine", "schedule_free", "legal: constant"});
  checked([](Deck& d) { d.optimizer.name = OptimizerName::muon, d.optimizer.adam_learning_rate = 1e-3; }, 4);
  expect_refused(
      [](Deck& d) {
        d.optimizer.groups = {{"*", 1e-3, {}, OptimizerName::lion}};
      },
      {"optimizer.groups[0].optimizer = lion with optimizer.name = adamw; legal: adamw"});
  expect_refused([](Deck& d) { d.optimizer.schedule = RateSchedule::piecewise; },
                 {"optimizer.schedule = piecewise without optimizer.rate_points"});
  expect_refused([](Deck& d) { d.optimizer.warmup_steps = 4, d.optimizer.cooldown_from = 3; },
                 {"optimizer.cooldown_from = 3 within the warm-up"});
}

TEST(Check, QkClip) {
  const auto clip = [](Deck& d) { d.optimizer.qk_clip = 100; };
  checked(clip, 4);
  expect_refused([&](Deck& d) { clip(d), d.model.qk_norm = true; },
                 {"optimizer.qk_clip = 100 with model.qk_norm = true", "legal: 0"});
  expect_refused(
      [&](Deck& d) {
        clip(d), d.optimizer.name = OptimizerName::schedule_free, d.optimizer.schedule = RateSchedule::constant;
      },
      {"optimizer.qk_clip = 100 with optimizer.name = schedule_free"});
}

TEST(Check, DataAndOutput) {
  expect_refused([](Deck& d) { d.data.document_end_token = 256; }, {"document_end_token = 256", "vocabulary = 256"});
  expect_refused([](Deck& d) { d.train.validate_every_steps = 5; },
                 {"validate_every_steps = 5", "data.validation_files"});
  EXPECT_NO_THROW(checked([](Deck& d) { d.data.files = {"b.bin"}, d.data.dtype = TokenType::uint16; }));
  EXPECT_NO_THROW(checked([](Deck& d) { d.data.files = {"b.bin"}; }));  // its header may say it
}

TEST(Check, SampleIsText) {
  for (const std::int64_t ids : {97, 255, 257, 32000}) {
    const std::string vocabulary = "model.vocabulary = " + std::to_string(ids);
    expect_refused([&](Deck& d) { d.output.sample_tokens = 5, d.model.vocabulary = ids; },
                   {"output.sample_tokens = 5 with", vocabulary.c_str(), "257 with data.document_end_token = 256"});
    expect_refused([&](Deck& d) { d.output.sample_prompt = "a", d.model.vocabulary = ids; },
                   {"output.sample_prompt with", vocabulary.c_str()});
    EXPECT_NO_THROW(checked([&](Deck& d) { d.model.vocabulary = ids; }));
  }
  EXPECT_NO_THROW(checked([](Deck& d) { d.output.sample_tokens = 5, d.output.sample_prompt = "a"; }));
  EXPECT_NO_THROW(
      checked([](Deck& d) { d.output.sample_tokens = 5, d.model.vocabulary = 257, d.data.document_end_token = 256; }));
  expect_refused([](Deck& d) { d.output.sample_tokens = 5, d.model.vocabulary = 257, d.data.document_end_token = 10; },
                 {"output.sample_tokens = 5"});
}

TEST(Check, Tensor) {
  const auto with_tp = [](std::int64_t tp) { return [tp](Deck& d) { d.mesh.tp = tp; }; };
  expect_refused(with_tp(3),
                 {"mesh.tp = 3 does not divide model.heads = 4", "does not divide model.ffn = 64",
                  "neither divides model.kv_heads = 4", "nearest legal tp: 2 or 4"},
                 3);
  expect_refused(with_tp(8), {"mesh.tp = 8 does not divide model.heads = 4; nearest legal tp: 4"}, 8);
  expect_refused(
      [](Deck& d) { d.mesh.tp = 6, d.model.heads = 12, d.model.head_dim = 4, d.model.kv_heads = 4, d.model.ffn = 60; },
      {"mesh.tp = 6 neither divides model.kv_heads = 4 nor is a multiple of it; nearest legal tp: 4 or 12"}, 6);
  for (const std::int64_t kv_heads : {1, 2, 4})  // copies, and shares
    EXPECT_NO_THROW(checked([&](Deck& d) { d.mesh.tp = 4, d.model.kv_heads = kv_heads; }, 4));
  EXPECT_NO_THROW(checked([](Deck& d) { d.mesh.tp = 4, d.model.vocabulary = 251; }, 4)) << "the vocabulary is padded";
}

TEST(Check, SequenceCuts) {
  expect_refused([](Deck& d) { d.mesh.cp = 2, d.train.sequence_tokens = 18; },
                 {"train.sequence_tokens = 18 is no multiple of 2 x mesh.cp = 2", "16 or 20"}, 2);
  expect_refused([](Deck& d) { d.mesh.tp = 4, d.train.sequence_tokens = 15; },
                 {"microbatch_sequences = 2 x train.sequence_tokens = 15 = 30 rows", "mesh.tp = 4", "14 or 16"}, 4);
  expect_refused(
      [](Deck& d) { d.mesh.tp = 4, d.mesh.cp = 2, d.train.sequence_tokens = 20, d.train.microbatch_sequences = 1; },
      {"= 10 rows are no multiple of mesh.tp = 4", "16 or 24"}, 8);
  expect_refused(
      [](Deck& d) {
        d.train.sequence_tokens = 1 << 20, d.train.microbatch_sequences = d.train.global_batch_sequences = 4;
      },
      {"= 4 x train.sequence_tokens = 1048576 / mesh.cp = 1 = 4194304 rows",
       "at most 4194240, here microbatch_sequences up to 3"});
  expect_refused(
      [](Deck& d) {
        d.train.sequence_tokens = 1 << 24, d.train.microbatch_sequences = d.train.global_batch_sequences = 1;
      },
      {"16777216 rows of a microbatch on a rank", "so more of cp"});
  EXPECT_NO_THROW(checked([](Deck& d) { d.mesh.tp = 4, d.train.sequence_tokens = 14; }, 4));
  EXPECT_NO_THROW(checked([](Deck& d) { d.mesh.cp_method = CpMethod::all_to_all; })) << "one rank: no effect";
}

TEST(Check, ZeroStagesAndAccumulation) {
  for (const std::int64_t stage : {0, 1, 2, 3})
    for (const auto how : {Accumulation::automatic, Accumulation::sharded, Accumulation::unsharded}) {
      const auto change = [&](Deck& d) { d.train.zero_stage = stage, d.train.accumulate = how; };
      if (how == Accumulation::unsharded && stage == 2)
        expect_refused(change, {"train.accumulate = unsharded", "automatic | sharded"});
      else if (how == Accumulation::sharded && stage == 0)
        expect_refused(change, {"train.accumulate = sharded", "train.zero_stage = 0"});
      else
        EXPECT_EQ(checked(change).train.accumulate, how != Accumulation::automatic ? how
                                                    : stage >= 2                   ? Accumulation::sharded
                                                                                   : Accumulation::unsharded);
    }
  expect_refused([](Deck& d) { d.train.gather = GatherPolicy::step, d.train.zero_stage = 2; },
                 {"train.gather = step", "zero_stage 3"});
  EXPECT_NO_THROW(checked([](Deck& d) { d.train.gather = GatherPolicy::step, d.train.zero_stage = 3; }));
}

TEST(Check, TwoLevelSums) {
  const auto two_levels = [](std::int64_t stage, int node_ranks) {
    return [=](Deck& d) {
      d.train.zero_stage = stage, d.train.reduction = ReductionLevels::two_level, d.mesh.node_ranks = node_ranks;
    };
  };
  EXPECT_NO_THROW(checked(two_levels(1, 2), 4));
  EXPECT_NO_THROW(checked(two_levels(3, 1), 4));
  expect_refused(two_levels(0, 2),
                 {"train.reduction = two_level with train.zero_stage = 0; legal: 1, 2, 3; or reduction: one_level"}, 4);
  expect_refused(two_levels(2, 4),
                 {"mesh.dp_shard x mesh.cp = 4, mesh.tp = 1 on nodes of 4 ranks; legal: shards on two nodes or more"},
                 4);
  expect_refused(two_levels(2, 3), {"on nodes of 3 ranks"}, 4);
  expect_refused(two_levels(2, 0), {"nodes that are not known"}, 4);
}

TEST(Check, Schedules) {
  for (const auto name : {ScheduleName::gpipe, ScheduleName::one_f_one_b, ScheduleName::interleaved,
                          ScheduleName::zero_bubble, ScheduleName::zb_v})
    for (const std::int64_t pp : {1, 2, 4}) {
      const Deck deck =
          checked([&](Deck& d) { d.schedule.name = name, d.mesh.pp = pp, d.model.layers = 8; }, static_cast<int>(pp));
      EXPECT_EQ(deck.schedule.virtual_stages, name == ScheduleName::zb_v ? 2 : 1);
    }
  const auto interleaved = [](std::int64_t pp, std::int64_t chunks) {
    return [=](Deck& d) {
      d.schedule.name = ScheduleName::interleaved, d.schedule.virtual_stages = chunks, d.mesh.pp = pp;
    };
  };
  const auto of_layers = [](std::int64_t layers, auto change) {
    return [=](Deck& d) { d.model.layers = layers, change(d); };
  };
  EXPECT_NO_THROW(checked(of_layers(6, interleaved(2, 3)), 2));
  EXPECT_NO_THROW(checked(of_layers(3, interleaved(1, 3)), 1));
  expect_refused(interleaved(3, 2), {"schedule.name interleaved", "M = 4", "nearest legal M", "3 or 6"}, 3);
  expect_refused([](Deck& d) { d.schedule.virtual_stages = 2; }, {"virtual_stages = 2", "schedule.name: interleaved"});
  expect_refused([](Deck& d) { d.schedule.name = ScheduleName::zb_v, d.schedule.virtual_stages = 3; },
                 {"virtual_stages = 3", "legal: 2"});
  expect_refused([](Deck& d) { d.train.microbatch_sequences = 1, d.train.global_batch_sequences = 1 << 25; },
                 {"33554432 microbatches", "legal: at most 1048576"});
}

TEST(Check, Splits) {
  for (const char* split : {"even", "balanced", "Ett||L", "Et||tL"})
    EXPECT_NO_THROW(checked([&](Deck& d) { d.schedule.split = split, d.mesh.pp = 3; }, 3)) << split;
  expect_refused([](Deck& d) { d.schedule.split = "Et|L", d.mesh.pp = 2; },
                 {"schedule.split", "1 layers t", "must be 2"}, 2);
  expect_refused([](Deck& d) { d.schedule.split = "evn"; }, {"schedule.split 'evn'", "legal are even, balanced"});
}

TEST(Check, MultiTokenPrediction) {
  const auto depth = [](std::int64_t n, const char* split) {
    return [n, split](Deck& d) { d.model.mtp_depth = n, d.schedule.split = split, d.mesh.pp = 2; };
  };
  for (const char* split : {"even", "balanced", "Et|tmL", "Ett|mL", "Ettm|L"})
    EXPECT_NO_THROW(checked(depth(1, split), 2)) << split;
  expect_refused(depth(1, "Etm|tL"), {"schedule.split", "position 5", "a layer t behind a multi-token layer m"}, 2);
  expect_refused(depth(2, "Ett|mL"), {"schedule.split", "1 multi-token layers m", "must be 2"}, 2);
  expect_refused(depth(0, "Ett|mL"), {"schedule.split", "the model has 0"}, 2);
  expect_refused([](Deck& d) { d.model.mtp_depth = d.train.sequence_tokens = 16; },
                 {"model.mtp_depth = 16", "train.sequence_tokens = 16", "at most 15"});
}

TEST(Check, Experts) {
  expect_refused([](Deck& d) { d.mesh.ep = 2; }, {"mesh.ep = 2 without model.experts; legal: 1"}, 2);
  expect_refused([](Deck& d) { d.mesh.tp = 2, d.mesh.etp = 1; }, {"mesh.etp = 1 without", "as mesh.tp"}, 2);
  EXPECT_EQ(checked([](Deck& d) { d.mesh.tp = d.mesh.etp = 2; }, 2).mesh.etp, 2);
  const auto experts = [](Deck& d) { d.model.experts = 4, d.model.experts_per_token = 2; };
  EXPECT_EQ(checked(experts).model.expert_ffn, 64) << "as model.ffn";
  EXPECT_EQ(checked([&](Deck& d) { experts(d), d.mesh.ep = 2; }, 2).mesh.dp_shard, 2);
  expect_refused([&](Deck& d) { experts(d), d.mesh.ep = 8, d.train.global_batch_sequences = 16; },
                 {"mesh.ep = 8 does not divide model.experts = 4; nearest legal ep: 4"}, 8);
  expect_refused([&](Deck& d) { experts(d), d.mesh.tp = 2, d.model.shared_expert_ffn = 33; },
                 {"mesh.tp = 2 does not divide model.shared_expert_ffn = 33"}, 2);
}

TEST(Check, CheckpointKeysNeedADirectory) {
  expect_refused([](Deck& d) { d.checkpoint.every_steps = 3; },
                 {"checkpoint.every_steps = 3 without checkpoint.directory", "legal: 0"});
  expect_refused([](Deck& d) { d.checkpoint.asynchronous = true; }, {"checkpoint.asynchronous = true", "legal: false"});
  expect_refused(
      [](Deck& d) {
        d.checkpoint.directory = "c";
        d.checkpoint.keep_every_steps = 3;
      },
      {"checkpoint.keep_every_steps = 3 with checkpoint.keep_last = 0"});
}

TEST(Check, OneReportForAllErrors) {
  Deck deck = small_deck();
  deck.model.ffn = 63;
  deck.mesh.dp_shard = 3;
  deck.mesh.tp = 2;
  deck.mesh.cp = 3;
  deck.train.global_batch_sequences = 7;
  deck.optimizer.warmup_steps = 99;
  deck.optimizer.min_ratio = -1;
  deck.train.gather = GatherPolicy::step;
  const std::string message = test::message_of([&] { check_deck(deck, 1); });
  EXPECT_NE(message.find("the deck has 6 errors"), std::string::npos) << message;
  for (const char* part : {"model.ffn = 63", "world is 1 rank", "global_batch_sequences = 7", "min_ratio = -1",
                           "gather = step", "2 x mesh.cp = 3"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
}

// With the right number of ranks the schedule and the split are on the same report.
TEST(Check, TheScheduleIsOnTheSameReport) {
  Deck deck = small_deck();
  deck.mesh.pp = 3;
  deck.schedule.name = ScheduleName::interleaved;
  deck.schedule.virtual_stages = 2;
  deck.schedule.split = "Ett|L";
  deck.train.seed = 1;
  deck.train.accumulate = Accumulation::sharded;
  const std::string message = test::message_of([&] { check_deck(deck, 3); });
  EXPECT_NE(message.find("the deck has 3 errors"), std::string::npos) << message;
  for (const char* part : {"schedule.name interleaved", "schedule.split", "train.accumulate"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
}

TEST(Check, ModelOnly) {
  Deck deck;
  deck.model = small_deck().model;
  deck.mesh.dp_shard = 8;
  check_deck(deck, 1, Needs::model_only);
  EXPECT_EQ(deck.model.head_dim, 8);
  deck.model.heads = 0;
  expect_bad_input([&] { check_deck(deck, 1, Needs::model_only); }, {"model.heads = 0", "legal: integer, 1 to"});
}

TEST(Check, MissingDirectoryOfTheModel) {
  expect_refused([](Deck& d) { d.model.hf = "/nonexistent/model"; }, {"model.hf = /nonexistent/model: No such file"});
}

// The decks of the repository's verification problems pass as they are.
TEST(Check, VerificationDecks) {
  const std::filesystem::path root = std::string(FORGE_SOURCE_DIR) + "/verify";
  int decks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const auto file = entry.path() / "input.yaml";
    if (!std::filesystem::exists(file)) continue;
    const std::string model = (entry.path() / "model").string();
    Deck deck;
    ASSERT_NO_THROW(deck = read_deck(test::read_file(file), file.string(), {"model.hf=" + model})) << file;
    ASSERT_NO_THROW(check_deck(deck, 1)) << file;
    EXPECT_GT(deck.model.head_dim, 0) << file;
    // The resolved deck names every key; none contradicts config.json.
    Deck again;
    ASSERT_NO_THROW(again = read_deck(write_deck(deck), "resolved", {})) << file;
    ASSERT_NO_THROW(check_deck(again, 1)) << file;
    EXPECT_EQ(test::difference(deck, again), "") << file;
    ++decks;
  }
  EXPECT_GE(decks, 10);
}

}  // namespace
}  // namespace forge
