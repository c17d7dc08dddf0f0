#include "models.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "config/family.hpp"
#include "config/router_score.hpp"
#include "core/normal.hpp"

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

// Multi-head latent attention; no width is a multiple of another.
void set_latent(ModelDeck& m, std::int64_t q_lora) {
  m.family = Family::deepseek_v3;
  m.attention = AttentionKind::mla;
  m.kv_heads = m.heads;
  m.q_lora = q_lora;
  m.kv_lora = 7;
  m.nope_dim = 3;
  m.rope_dim = 2;
  m.value_dim = 4;
  m.head_dim = 0;
}

}  // namespace

std::vector<TestModel> test_models() {
  std::vector<TestModel> models;
  Deck llama = base_deck();
  llama.model.no_rope_every = 2;
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
  qwen3.model.rope_fraction = 0.5;
  qwen3.model.sliding_window = 5;
  qwen3.model.sliding_window_layer = 2;
  qwen3.model.sliding_window_full_every = 3;
  qwen3.model.rope_window_theta = 100;
  qwen3.train.z_loss_coefficient = 1e-2;
  models.push_back({"qwen3", qwen3});

  Deck qwen2 = base_deck();
  qwen2.model.family = Family::qwen2;
  qwen2.model.qkv_bias = true;
  qwen2.model.norm_placement = NormPlacement::behind;
  qwen2.model.kv_heads = 1;
  qwen2.model.activation = Activation::relu2;
  qwen2.data.document_end_token = 5;
  qwen2.optimizer.clip_norm = 0;
  models.push_back({"qwen2", qwen2});

  Deck gemma3 = base_deck();
  gemma3.model.family = Family::gemma3_text;
  gemma3.model.norm_placement = NormPlacement::both;
  gemma3.model.activation = Activation::geglu;
  gemma3.model.qk_norm = gemma3.model.tied_embeddings = true;
  gemma3.model.embedding_scale = std::sqrt(24.0);
  gemma3.model.query_pre_attn_scalar = 3;
  gemma3.model.sliding_window = 6;
  gemma3.model.sliding_window_full_every = 2;
  gemma3.model.rope_window_theta = 100;
  models.push_back({"gemma3", gemma3});

  Deck ministral3 = base_deck();
  ministral3.model.family = Family::ministral3;
  ministral3.model.kv_heads = 1;
  ministral3.model.rope_scaling = RopeScaling::yarn;
  ministral3.model.rope_factor = 4;
  ministral3.model.rope_original_positions = 4;
  ministral3.model.query_position_scale = 0.4;
  ministral3.model.attention_sinks = true;
  ministral3.data.document_end_token = 3;
  models.push_back({"ministral3", ministral3});

  Deck latent = base_deck();
  set_latent(latent.model, 10);
  latent.model.rope_interleave = true;
  latent.model.rope_scaling = RopeScaling::yarn;
  latent.model.rope_factor = 4;
  latent.model.rope_original_positions = 8;
  latent.model.rope_mscale = latent.model.rope_mscale_all_dim = 0.8;
  latent.data.document_end_token = 3;
  models.push_back({"latent", latent});

  Deck direct = base_deck();
  set_latent(direct.model, 0);
  direct.model.tied_embeddings = true;
  direct.model.dropout = 0.1;
  models.push_back({"latent without q_lora", direct});
  return models;
}

namespace {

constexpr std::uint64_t one_expert_seed = 101, empty_expert_seed = 102;

Deck moe_deck() {
  Deck d = base_deck();
  ModelDeck& m = d.model;
  m.family = Family::qwen3_moe;
  m.experts = 6;
  m.experts_per_token = 2;
  m.expert_ffn = 24;
  m.dispatch_rows = 1;
  d.data.document_end_token = 3;
  return d;
}

}  // namespace

std::vector<TestModel> moe_models() {
  std::vector<TestModel> models;
  Deck mixtral = moe_deck();
  mixtral.model.auxiliary_loss_coefficient = 0.1;
  mixtral.model.router_z_coefficient = 0.03;
  models.push_back({"mixtral", mixtral});

  Deck fine = moe_deck();  // many rounds
  fine.model.qk_norm = fine.model.qk_norm_whole = true;
  fine.model.router_renormalise = false;
  fine.model.experts_per_token = 3;
  fine.model.dense_layers = {1};
  fine.model.moe_every = 1;
  fine.model.dispatch_rows = 0.3;
  fine.model.auxiliary_loss_coefficient = 0.1;
  fine.model.auxiliary_loss_scope = AuxiliaryScope::microbatch;
  models.push_back({"fine", fine});

  Deck deepseek = moe_deck();
  set_latent(deepseek.model, 9);
  deepseek.model.rope_interleave = true;
  deepseek.model.first_dense_layers = 2;
  deepseek.model.router_score = ScoreKind::sigmoid;
  deepseek.model.router_groups = 3;
  deepseek.model.router_groups_used = 2;
  deepseek.model.router_scale = 2.5;
  deepseek.model.router_bias = true;
  deepseek.model.router_bias_rate = 1e-2;
  deepseek.model.shared_expert_ffn = 40;
  deepseek.model.auxiliary_loss_coefficient = 0.05;
  models.push_back({"deepseek", deepseek});

  Deck drops = moe_deck();
  drops.model.experts_per_token = 1;
  drops.model.router_renormalise = false;
  drops.model.dispatch_rows = Deck().model.dispatch_rows;
  drops.model.capacity_factor = 1;
  drops.model.router_jitter = 0.1;
  drops.model.dropout = 0.1;
  drops.model.shared_expert_ffn = 40;
  drops.model.shared_expert_gate = true;
  drops.model.tied_embeddings = true;
  drops.model.moe_every = 2;
  models.push_back({"drops by position", drops});

  // Rows that see the same tokens only differ by rounding: their order by probability would be chance. Documents may
  // begin alike; a sequence doesn't begin with the same token twice, since no token of the file follows itself.
  Deck after = moe_deck();
  after.data.document_end_token = -1;
  after.model.router_score = ScoreKind::softmax_after;
  after.model.dispatch_rows = 0.6;  // many rounds
  after.model.capacity_factor = 0.8;
  after.model.capacity_drop = CapacityDrop::probability;
  after.model.router_z_coefficient = 0.02;
  after.model.shared_expert_ffn = 40;
  models.push_back({"drops by probability", after});

  Deck roomy = moe_deck();  // as many places as tokens
  roomy.model.dispatch_rows = Deck().model.dispatch_rows;
  roomy.model.capacity_factor = 3;
  models.push_back({"drops nothing", roomy});

  Deck gathered = moe_deck();
  gathered.model.dispatch = DispatchMethod::all_gather;
  gathered.model.dispatch_rows = 0.6;
  gathered.model.qk_norm = true;
  gathered.model.shared_expert_ffn = 40;
  models.push_back({"gathered", gathered});

  Deck one_round = moe_deck();  // as many rows as may come
  one_round.model.dispatch = DispatchMethod::all_gather;
  one_round.model.dispatch_rows = 6;
  one_round.model.capacity_factor = 0;
  models.push_back({"gathered once", one_round});

  Deck one = moe_deck();
  one.model.experts_per_token = 1;
  one.model.router_renormalise = false;
  one.model.router_bias = true;
  one.train.seed = one_expert_seed;
  models.push_back({"one expert", one});

  Deck empty = moe_deck();
  empty.model.router_bias = true;
  empty.train.seed = empty_expert_seed;
  models.push_back({"an empty expert", empty});

  Deck biased = moe_deck();
  biased.model.family = Family::gpt_oss;
  biased.model.attention_sinks = biased.model.expert_bias = biased.model.router_logit_bias = true;
  biased.model.qkv_bias = biased.model.attention_out_bias = true;
  biased.model.activation = Activation::clamped_swiglu;
  biased.model.activation_limit = 0.1;
  biased.model.sliding_window = 5;
  biased.model.sliding_window_full_every = 2;
  biased.model.experts_per_token = 3;
  biased.model.dispatch_rows = 0.6;
  models.push_back({"biased experts", biased});
  return models;
}

std::vector<TestModel> mtp_models() {
  std::vector<TestModel> models;
  const auto add = [&](const std::string& name, const TestModel& model, std::int64_t depth, double factor) {
    Deck deck = model.deck;
    deck.model.mtp_depth = depth;
    deck.model.mtp_loss_factor = factor;
    models.push_back({name, deck});
  };
  const auto dense = test_models(), experts = moe_models();
  add("llama, depth 1", dense[0], 1, 0.7);  // documents
  add("gpt2, depth 2", dense[1], 2, 0.5);   // tied, LayerNorm, learned positions, dropout
  add("qwen3, depth 2", dense[2], 2, 1.3);  // tied, z-loss, a window
  add("mixtral, depth 1", experts[0], 1, 0.6);
  add("deepseek, depth 2", experts[2], 2, 0.9);
  add("drops by position, depth 1", experts[3], 1, 0.8);
  return models;
}

std::vector<double> starting_biases(const Deck& deck) {
  const std::int64_t experts = deck.model.experts;
  std::vector<double> biases(static_cast<std::size_t>((deck.model.layers + deck.model.mtp_depth) * experts));
  for (std::size_t i = 0; i < biases.size(); ++i) {
    const auto expert = static_cast<std::int64_t>(i) % experts;
    biases[i] = 0.05 * normal(31, i);
    if (deck.train.seed == one_expert_seed && expert == 4) biases[i] = 100;
    if (deck.train.seed == empty_expert_seed && expert == 1) biases[i] = -100;
  }
  return biases;
}

bool takes_delta(const Deck& deck) {
  return deck.model.attention == AttentionKind::standard && deck.model.family != Family::gpt2;
}

Deck with_delta(Deck deck, std::size_t choice) {
  ModelDeck& m = deck.model;
  const std::int64_t ranks = deck.mesh.tp * deck.mesh.cp;
  m.full_attention_interval = choice % 2 == 0 ? 2 : 3;
  m.linear_key_heads = 8 % ranks == 0 ? 8 : ranks;
  m.linear_value_heads = (choice % 3 == 0 ? 2 : 1) * m.linear_key_heads;
  m.linear_key_dim = 5;
  m.linear_value_dim = choice % 5 == 0 ? 3 : 6;
  m.linear_conv_taps = choice % 4 == 0 ? 2 : 4;
  m.attention_output_gate = choice % 2 == 1 && *tensor_names(m.family).qkv == 0;
  m.norm_epsilon = 1e-2;  // outputs of the rule are small at the start: a norm would enlarge what rounding leaves
  if (choice % 3 == 1) {
    const std::int64_t unit = 2 * ranks;
    deck.train.sequence_tokens = (143 + unit) / unit * unit;
    m.max_positions = std::max(m.max_positions, deck.train.sequence_tokens);
  }
  return deck;
}

bool is_idle(const Deck& deck, const std::string& parameter) {
  const auto at = parameter.find(".experts.");
  if (at == std::string::npos || !deck.model.router_bias) return false;
  const int expert = std::stoi(parameter.substr(at + 9));
  return (deck.train.seed == one_expert_seed && expert != 4) || (deck.train.seed == empty_expert_seed && expert == 1);
}

namespace {

// Removes its file when the process ends.
struct TokenFile {
  std::string path;
  TokenFile(std::int64_t vocabulary, std::int64_t tokens)
      : path(std::filesystem::temp_directory_path() /
             ("forge_layouts_" + std::to_string(getpid()) + "_" + std::to_string(vocabulary) + "_" +
              std::to_string(tokens) + ".bin")) {
    std::ofstream out(path, std::ios::binary);
    std::uint64_t last = 0;
    for (std::int64_t i = 0; i < tokens; ++i) {
      const auto n = static_cast<std::uint64_t>(vocabulary);
      last = (last + 1 + mix(11, static_cast<std::uint64_t>(i)) % (n - 1)) % n;
      const auto token = static_cast<std::uint16_t>(last);
      out.write(reinterpret_cast<const char*>(&token), sizeof token);
    }
  }
  ~TokenFile() { std::filesystem::remove(path); }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
};

}  // namespace

std::string token_file(std::int64_t vocabulary, std::int64_t tokens) {
  static std::map<std::pair<std::int64_t, std::int64_t>, TokenFile> files;
  return files.try_emplace({vocabulary, tokens}, vocabulary, tokens).first->second.path;
}

}  // namespace forge::test
