#include "models.hpp"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/random.hpp"

namespace forge::test {

namespace {

Deck base_deck() {
  Deck d;
  d.model.layers = 5;
  d.model.width = 24;
  d.model.heads = 8;
  d.model.kv_heads = 2;
  d.model.head_dim = 4;
  d.model.ffn = 40;
  d.model.vocabulary = 31;
  d.model.initial_std = 0.2;
  d.train.steps = 3;
  d.train.global_batch_sequences = 16;
  d.train.microbatch_sequences = 1;
  d.train.sequence_tokens = 16;
  d.train.precision = PrecisionName::fp64;
  d.train.seed = 7;
  d.train.head_chunk_rows = 5;
  d.optimizer.learning_rate = 1e-2;
  d.optimizer.clip_norm = 0.5;
  d.optimizer.warmup_steps = 1;
  d.data.dtype = TokenType::uint16;
  d.data.order = SampleOrder::shuffled;
  d.output.directory = "none";
  d.machine.workspace_mib = 1;
  d.machine.threads = 1;
  d.data.files = {token_file(31, 4097)};
  return d;
}

}  // namespace

std::vector<TestModel> test_models() {
  std::vector<TestModel> models;
  Deck llama = base_deck();
  llama.data.document_end_token = 3;
  models.push_back({"llama", llama});

  Deck gpt2 = base_deck();
  gpt2.model.family = Family::gpt2;
  gpt2.model.norm = NormKind::layernorm;
  gpt2.model.activation = Activation::gelu_tanh;
  gpt2.model.positions = PositionKind::learned;
  gpt2.model.max_positions = 19;
  gpt2.model.kv_heads = 8;
  gpt2.model.head_dim = 3;
  gpt2.model.qkv_bias = gpt2.model.attention_out_bias = gpt2.model.mlp_bias = gpt2.model.tied_embeddings = true;
  gpt2.model.dropout = 0.1;
  models.push_back({"gpt2", gpt2});

  Deck qwen3 = base_deck();
  qwen3.model.family = Family::qwen3;
  qwen3.model.qk_norm = qwen3.model.tied_embeddings = true;
  qwen3.model.sliding_window = 5;
  qwen3.model.sliding_window_layer = 2;
  qwen3.train.z_loss_coefficient = 1e-2;
  models.push_back({"qwen3", qwen3});

  Deck qwen2 = base_deck();
  qwen2.model.family = Family::qwen2;
  qwen2.model.qkv_bias = true;
  qwen2.model.kv_heads = 1;
  qwen2.model.activation = Activation::relu2;
  qwen2.data.document_end_token = 5;
  qwen2.optimizer.clip_norm = 0;
  models.push_back({"qwen2", qwen2});
  return models;
}

namespace {

// Removes its file when the process ends.
struct TokenFile {
  std::string path;
  TokenFile(std::int64_t vocabulary, std::int64_t tokens)
      : path(std::filesystem::temp_directory_path() /
             ("forge_layouts_" + std::to_string(getpid()) + "_" + std::to_string(vocabulary) + ".bin")) {
    std::ofstream out(path, std::ios::binary);
    for (std::int64_t i = 0; i < tokens; ++i) {
      const auto token =
          static_cast<std::uint16_t>(mix(11, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(vocabulary));
      out.write(reinterpret_cast<const char*>(&token), sizeof token);
    }
  }
  ~TokenFile() { std::filesystem::remove(path); }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
};

}  // namespace

std::string token_file(std::int64_t vocabulary, std::int64_t tokens) {
  static std::map<std::int64_t, TokenFile> files;
  return files.try_emplace(vocabulary, vocabulary, tokens).first->second.path;
}

}  // namespace forge::test
