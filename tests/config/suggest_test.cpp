#include "config/suggest.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <regex>

#include "config/keys.hpp"
#include "config/read.hpp"
#include "support.hpp"

namespace forge {
namespace {

TEST(Suggest, NamesOfOtherPrograms) {
  const auto key = [](const char* section, const char* name) { return suggest_key(section, name).key; };
  EXPECT_EQ(key("optimizer", "lr"), "optimizer.learning_rate");
  EXPECT_EQ(key("train", "max_lr"), "optimizer.learning_rate");
  EXPECT_EQ(key("train", "learning-rate"), "optimizer.learning_rate");
  EXPECT_EQ(key("model", "hidden_size"), "model.width");
  EXPECT_EQ(key("model", "hiddenSize"), "model.width");
  EXPECT_EQ(key("model", "n_embd"), "model.width");
  EXPECT_EQ(key("model", "intermediate_size"), "model.ffn");
  EXPECT_EQ(key("model", "num_hidden_layers"), "model.layers");
  EXPECT_EQ(key("model", "num_key_value_heads"), "model.kv_heads");
  EXPECT_EQ(key("model", "vocab_size"), "model.vocabulary");
  EXPECT_EQ(key("train", "seq_len"), "train.sequence_tokens");
  EXPECT_EQ(key("model", "block_size"), "train.sequence_tokens");
  EXPECT_EQ(key("train", "batch_size"), "train.global_batch_sequences");
  EXPECT_EQ(key("train", "micro_batch_size"), "train.microbatch_sequences");
  EXPECT_EQ(key("train", "max_steps"), "train.steps");
  EXPECT_EQ(key("train", "eval_interval"), "train.validate_every_steps");
  EXPECT_EQ(key("output", "dir"), "output.directory");
  EXPECT_EQ(key("checkpoint", "dir"), "checkpoint.directory");
  EXPECT_EQ(key("checkpoint", "save_every"), "checkpoint.every_steps");
  EXPECT_EQ(key("mesh", "tensor_model_parallel_size"), "mesh.tp");
  EXPECT_EQ(key("mesh", "pipeline_parallel_degree"), "mesh.pp");
  EXPECT_EQ(key("train", "bf16"), "train.precision");
}

TEST(Suggest, WhatForgeLacks) {
  const auto text = [](const char* section, const char* name) { return suggest_key(section, name).text; };
  EXPECT_NE(text("model", "lora_rank").find("adapter.name: lora"), std::string::npos);
  EXPECT_NE(text("train", "dpo_beta").find("preference.name: dpo"), std::string::npos);
  EXPECT_NE(text("output", "wandb_project").find("output.track"), std::string::npos);
  EXPECT_NE(text("train", "grad_accum_steps").find("train.microbatch_sequences"), std::string::npos);
  EXPECT_NE(text("mesh", "fsdp").find("mesh.dp_shard"), std::string::npos);
  EXPECT_NE(text("train", "epochs").find("train.steps"), std::string::npos);
  EXPECT_EQ(text("train", "teacher_forcing_ratio"), "") << "nobody knows what is meant";
  EXPECT_EQ(text("mesh", "q"), "");
}

TEST(Suggest, NearKeysOfTheSectionAlone) {
  const auto key = [](const char* section, const char* name) { return suggest_key(section, name).key; };
  EXPECT_EQ(key("model", "layrs"), "model.layers");
  EXPECT_EQ(key("model", "headz"), "model.heads");
  EXPECT_EQ(key("trian", "steps"), "train.steps");
  EXPECT_EQ(key("train", "step"), "train.steps");
  EXPECT_EQ(key("train", "sequence_token"), "train.sequence_tokens");
  EXPECT_EQ(key("model", "kvHeads"), "model.kv_heads");
  EXPECT_EQ(key("schedule", "pipeline_parallel_schedule"), "schedule.name");
  EXPECT_EQ(key("train", "overlap_moe_expert_parallel_comm"), "train.overlap");
  EXPECT_EQ(key("train", "recompute_modules"), "train.recompute");
  EXPECT_EQ(key("optimizer", "widht"), "");
  EXPECT_EQ(suggest_section("modell"), "nearest known section: model");
  EXPECT_NE(suggest_section("evaluation").find("train.validate_every_steps"), std::string::npos);
  EXPECT_EQ(suggest_section("parallelism"), "forge calls it mesh");
  EXPECT_EQ(suggest_section("zebra"), "");
}

// What the table of aliases names is there.
TEST(Suggest, AliasesNameKeysThatExist) {
  const std::string source = test::read_file(std::string(FORGE_SOURCE_DIR) + "/src/config/aliases.cpp");
  const std::regex qualified("(model|mesh|schedule|train|optimizer|data|checkpoint|output|machine)\\.([a-z_0-9]+)");
  int seen = 0;
  for (auto at = std::sregex_iterator(source.begin(), source.end(), qualified); at != std::sregex_iterator(); ++at)
    EXPECT_TRUE(find_key((*at)[1], (*at)[2])) << at->str() << ", " << ++seen;
  for (const auto& key : all_keys()) EXPECT_EQ(key_named(key.qualified()), key.qualified());
}

// 1 MiB of keys that nobody knows took 70 s.
TEST(Suggest, AsManyUnknownKeysAsADeckHolds) {
  std::string deck = "model:\n";
  for (int i = 0; deck.size() < 1'000'000; ++i) deck += "  learning_rat" + std::to_string(i) + ": 1\n";
  const std::clock_t start = std::clock();
  test::expect_bad_input([&] { read_deck(deck, "deck.yaml", {}, Needs::model_only); }, {"unknown key", "more"});
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 10);
}

}  // namespace
}  // namespace forge
