#include "hf/special_ids.hpp"

#include <nlohmann/json.hpp>

#include "../config/support.hpp"
#include "hf/config.hpp"

namespace forge {
namespace {

using nlohmann::json;
using test::expect_bad_input;

TEST(SpecialIds, OfADirectory) {
  const auto ids = [](const char* generation, const char* config) {
    const test::Directory directory;
    if (*generation) directory.write("generation_config.json", generation);
    directory.write("config.json", config);
    return read_special_ids(directory.path());
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(ids("", R"({"eos_token_id": 8, "bos_token_id": 5})").ends, (Ids{8}));
  EXPECT_EQ(ids("", R"({"eos_token_id": [8, 9], "pad_token_id": -1})").ends, (Ids{8, 9}));
  EXPECT_EQ(ids(R"({"eos_token_id": [3, 1]})", R"({"eos_token_id": 8})").ends, (Ids{3, 1}));
  EXPECT_EQ(ids(R"({"eos_token_id": null, "pad_token_id": 4})", R"({"eos_token_id": 8})").ends, (Ids{8}));
  EXPECT_EQ(ids(R"({"pad_token_id": 4})", R"({"eos_token_id": 8, "bos_token_id": 5})").padding, 4);
  EXPECT_EQ(ids(R"({"pad_token_id": 4})", R"({"bos_token_id": 5})").begin, 5);
  EXPECT_TRUE(ids("", R"({"eos_token_id": null})").ends.empty());
  EXPECT_FALSE(ids("", R"({"pad_token_id": -1})").padding);
  EXPECT_EQ(ids("", R"({"pad_token_id": 4, "text_config": {"pad_token_id": 3, "eos_token_id": 7}})").ends, (Ids{7}));
  expect_bad_input([&] { ids("", R"({"eos_token_id": "</s>"})"); }, {"eos_token_id", "legal: an id, or a list of ids"});
  expect_bad_input([&] { ids("", R"({"eos_token_id": [1, 2.5]})"); }, {"eos_token_id", "2.5"});
  const json both = json::parse(generation_config({{7, 8}, 5, {}}, R"({"temperature": 0.6, "eos_token_id": 7})"));
  EXPECT_EQ(both, (json{{"temperature", 0.6}, {"eos_token_id", {7, 8}}, {"bos_token_id", 5}}));
}

// What the arithmetic doesn't need, and other programs do.
TEST(SpecialIds, FactsBesideTheModel) {
  ModelDeck model;
  model.layers = model.heads = model.kv_heads = 1;
  model.width = model.head_dim = model.ffn = 8;
  model.vocabulary = 16;
  model.max_positions = 77;
  HfFacts facts{.dtype = "bfloat16", .ids = {{8}, 5, 3}, .positions = 12};
  json config = json::parse(write_hf_config(model, facts));
  EXPECT_EQ(config["eos_token_id"], 8);
  EXPECT_EQ(config["bos_token_id"], 5);
  EXPECT_EQ(config["pad_token_id"], 3);
  EXPECT_EQ(config["dtype"], "bfloat16");
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["max_position_embeddings"], 77);
  ModelDeck of_dimensions = model;
  of_dimensions.max_positions = 0;
  facts.ids.ends = {8, 9};
  config = json::parse(write_hf_config(of_dimensions, facts));
  EXPECT_EQ(config["max_position_embeddings"], 12);
  EXPECT_EQ(config["eos_token_id"], (json{8, 9}));
}

}  // namespace
}  // namespace forge
