#include "hf/config.hpp"

#include <algorithm>
#include <cmath>

#include "config/family.hpp"
#include "config/key_bounds.hpp"
#include "config/keys.hpp"
#include "config/text.hpp"
#include "core/parse.hpp"
#include "hf/families.hpp"
#include "hf/fp8/quantization.hpp"
#include "hf/json_input.hpp"
#include "hf/linear_words.hpp"
#include "hf/model_files.hpp"
#include "hf/rope.hpp"

namespace forge {

using nlohmann::json;

namespace {

// A list of words; empty when absent or wrong.
std::vector<std::string> read_words(const JsonObject& config, const char* key) {
  std::vector<std::string> words;
  const json* list = config.find(key);
  if (!list) return words;
  const bool good =
      list->is_array() && std::all_of(list->begin(), list->end(), [](const json& item) { return item.is_string(); });
  if (!good) {
    config.refuse(key, "= " + shown_json(*list) + "; legal: a list of texts");
    return words;
  }
  for (const auto& item : *list) words.push_back(item.get<std::string>());
  return words;
}

// layer_types: full attention in the first layers and the window in all others. Returns how many are full, or -1.
std::int64_t full_layers(const JsonObject& config, const ModelDeck& model) {
  const auto types = read_words(config, "layer_types");
  const auto is_full = [](const std::string& type) { return type == "full_attention" || type == "attention"; };
  const auto first = std::find_if_not(types.begin(), types.end(), is_full);
  const bool known = std::all_of(first, types.end(), [](const std::string& t) { return t == "sliding_attention"; });
  if (!known || static_cast<std::int64_t>(types.size()) != model.layers) {
    config.refuse("layer_types", "legal: " + std::to_string(model.layers) +
                                     " entries, first every full_attention, then every sliding_attention");
    return -1;
  }
  return first - types.begin();
}

void set_window(ModelDeck& model, std::int64_t window, std::int64_t first_layer) {
  const bool used = window > 0 && first_layer < model.layers;
  model.sliding_window = used ? window : 0;
  model.sliding_window_layer = used ? first_layer : 0;
}

// The window is off unless use_sliding_window says otherwise.
void read_window_from_layer(const JsonObject& config, ModelDeck& model) {
  const bool used = config.flag("use_sliding_window", false) && !config.is_null("sliding_window");
  const std::int64_t window = config.integer("sliding_window", 4096, 1, most_positions);
  std::int64_t first = config.integer("max_window_layers", 28, 0, most_size);
  if (config.has("layer_types")) {
    first = full_layers(config, model);
    if (first < 0) return;
    if (!used && first < model.layers)
      config.refuse("layer_types", "has sliding_attention, but use_sliding_window and sliding_window give no window");
  }
  set_window(model, used ? window : 0, first);
}

// The window in all layers, in none, or in all but each n-th.
void read_window_by_type(const JsonObject& config, const HfFamily& family, ModelDeck& model) {
  const std::string full = "full_attention", windowed = "sliding_attention";
  std::int64_t every = family.full_every;
  if (*family.full_every_key) every = config.integer(family.full_every_key, every, 1, most_layers);
  if (config.has("layer_types")) {
    const auto types = read_words(config, "layer_types");
    const std::int64_t first = std::find(types.begin(), types.end(), full) - types.begin();
    every = first < std::ssize(types) ? first + 1 : 0;
    std::vector<std::string> legal;
    for (std::int64_t number = 1; number <= std::min<std::int64_t>(model.layers, std::ssize(types) + 1); ++number)
      legal.push_back(every > 0 && number % every == 0 ? full : windowed);
    if (types != legal)
      return config.refuse("layer_types", "legal: " + std::to_string(model.layers) +
                                              " entries, sliding_attention but for every layer whose number, counted "
                                              "from 1, is a multiple of one number: full_attention");
  }
  if (every == 1) return;
  if (config.is_null("sliding_window"))
    return config.refuse("sliding_window", "= null with sliding_attention in layer_types; legal: integer, 1 or more");
  model.sliding_window = config.integer("sliding_window", family.sliding_window, 1, most_positions);
  model.sliding_window_full_every = every <= model.layers ? every : 0;
}

// A window that holds for every layer, or none. These families' code never reads layer_types.
void read_plain_window(const JsonObject& config, HfWindow kind, ModelDeck& model) {
  if (kind == HfWindow::refused && config.flag("use_sliding_window", false))
    config.refuse("use_sliding_window", "= true: in this model_type a window in some layers; legal: false");
  const bool used = kind == HfWindow::every_layer ||
                    (kind == HfWindow::every_layer_if_used && config.flag("use_sliding_window", false));
  if ((used && !config.is_null("sliding_window")) ||
      (kind == HfWindow::every_layer_if_given && config.has("sliding_window")))
    set_window(model, config.integer("sliding_window", 4096, 1, most_positions), 0);
  if (!config.has("layer_types")) return;
  const std::int64_t full = full_layers(config, model);
  const std::int64_t meant = model.sliding_window > 0 ? 0 : model.layers;
  if (full >= 0 && full != meant)
    config.refuse("layer_types", std::string("legal for this model_type: ") +
                                     (meant == 0 ? "sliding_attention" : "full_attention") + " in every layer");
}

void read_biases(const JsonObject& config, const HfBiases& keys, ModelDeck& model) {
  const auto read = [&](const char* key, bool absent) { return *key ? config.flag(key, absent) : absent; };
  model.qkv_bias = read(keys.qkv, keys.always);
  model.attention_out_bias = read(keys.out, keys.out_always);
  model.mlp_bias = read(keys.mlp, false);
}

void read_attention(const JsonObject& config, const HfFamily& family, ModelDeck& model) {
  const HfSizes& absent = family.sizes;
  // Here null has a meaning of its own in transformers: as many as heads.
  const bool as_heads = absent.kv_heads == 0 || config.is_null("num_key_value_heads");
  model.kv_heads = config.integer("num_key_value_heads", as_heads ? model.heads : absent.kv_heads, 1, most_size);
  const std::int64_t derived = model.width % model.heads == 0 ? model.width / model.heads : 0;
  model.head_dim = config.integer("head_dim", absent.head_dim > 0 ? absent.head_dim : derived, 1, most_size);
}

void read_activation(const JsonObject& config, const HfFamily& family, ModelDeck& model) {
  const std::string legal = family.activation == Activation::geglu ? "gelu_pytorch_tanh" : "silu";
  const std::string word = config.text(family.activation_key, legal);
  if (word != legal && (legal != "silu" || word != "swish"))
    config.refuse(family.activation_key, "= " + shown(word) + "; legal: " + legal);
  model.activation = family.activation;
}

void read_rotary_family(const JsonObject& config, const HfFamily& family, ModelDeck& model) {
  const HfSizes& absent = family.sizes;
  model.width = config.integer("hidden_size", absent.width, 1, most_size);
  model.ffn = config.integer("intermediate_size", absent.ffn, 1, most_size);
  model.layers = config.integer("num_hidden_layers", absent.layers, 1, most_size);
  model.heads = config.integer("num_attention_heads", absent.heads, 1, most_size);
  model.vocabulary = config.integer("vocab_size", absent.vocabulary, 1, most_size);
  if (!family.latent) read_attention(config, family, model);
  model.max_positions = config.integer("max_position_embeddings", absent.positions, 1, most_positions);
  model.norm_epsilon = config.number("rms_norm_eps", family.epsilon, 0);
  model.tied_embeddings = config.flag("tie_word_embeddings", family.tied);
  read_activation(config, family, model);
  model.qk_norm_whole = family.qk_norm_whole;
  model.norm_placement = family.norms;
  model.attention_sinks = family.sinks;
  if (family.scaled_embeddings) model.embedding_scale = std::sqrt(static_cast<double>(model.width));
  if (family.query_pre_attn_scalar > 0)
    model.query_pre_attn_scalar = config.number("query_pre_attn_scalar", family.query_pre_attn_scalar, 0);
  for (const char* key : family.refused)
    if (*key && config.has(key))
      config.refuse(key, "= " + shown_json(*config.find(key)) + ": not available; legal: null");
  model.qk_norm = *family.qk_norm_key ? config.flag(family.qk_norm_key, family.qk_norm) : family.qk_norm;
  read_biases(config, family.biases, model);
  if (family.window == HfWindow::from_layer)
    read_window_from_layer(config, model);
  else if (family.window == HfWindow::by_type)
    read_window_by_type(config, family, model);
  else if (!family.linear)
    read_plain_window(config, family.window, model);
  read_linear(config, family, model);
  if (family.read_experts) family.read_experts(config, family.experts, model);
  // As in a resolved deck, which repeats it.
  if (model.experts > 0 && model.router_groups_used == 0) model.router_groups_used = model.router_groups;
  model.rope_theta = family.rope_theta;
  read_hf_rope(config, family, model);
}

Activation gpt2_activation(const JsonObject& config) {
  const std::string name = config.text("activation_function", "gelu_new");
  for (const char* tanh : {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate"})
    if (name == tanh) return Activation::gelu_tanh;
  if (name == "gelu" || name == "gelu_python") return Activation::gelu;
  if (name == "relu2") return Activation::relu2;
  config.refuse("activation_function", "= " + shown(name) + "; legal: gelu_new | gelu_pytorch_tanh | gelu | relu2");
  return Activation::gelu_tanh;
}

void read_gpt2(const JsonObject& config, ModelDeck& model) {
  model.width = aliased_size(config, "n_embd", "hidden_size", 768);
  model.layers = aliased_size(config, "n_layer", "num_hidden_layers", 12);
  model.heads = aliased_size(config, "n_head", "num_attention_heads", 12);
  model.max_positions = aliased_size(config, "n_positions", "max_position_embeddings", 1024);
  model.ffn = config.integer("n_inner", 4 * model.width, 1, most_size);
  model.vocabulary = config.integer("vocab_size", 50257, 1, most_size);
  model.kv_heads = model.heads;
  if (model.width % model.heads != 0)
    config.refuse("n_embd",
                  "= " + std::to_string(model.width) + " is no multiple of n_head = " + std::to_string(model.heads));
  model.head_dim = model.width / model.heads;
  model.norm = NormKind::layernorm;
  model.norm_epsilon = config.number("layer_norm_epsilon", 1e-5, 0);
  model.positions = PositionKind::learned;
  model.activation = gpt2_activation(config);
  model.qkv_bias = model.attention_out_bias = model.mlp_bias = true;
  model.tied_embeddings = config.flag("tie_word_embeddings", true);
  if (!config.flag("scale_attn_weights", true)) config.refuse("scale_attn_weights", "= false; legal: true");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    if (config.flag(key, false)) config.refuse(key, "= true; legal: false");
}

const HfModelType* read_type(const JsonObject& config) {
  const std::string type = config.text("model_type", "");
  const HfModelType* const found = hf_model_type(type);
  if (found) return found;
  const std::string lacking = lacking_for(type);
  config.refuse("model_type", (type.empty() ? "missing" : "= " + shown(type)) +
                                  (lacking.empty() ? "" : ", " + lacking) + "; legal: " + hf_model_types() +
                                  ", or a model of dimensions in the deck, without model.hf");
  return nullptr;
}

// The map that has the text model's keys.
const json& text_of(const JsonObject& config, const json& root, const HfModelType& type) {
  if (!type.nested) return root;
  const json* const text = config.find("text_config");
  if (text && text->is_object()) return *text;
  config.refuse("text_config",
                (text ? "= " + shown_json(*text) : "missing") + "; legal: a map with the text model's keys");
  return root;
}

// The family of the text model, whose own model_type may say it; nullptr: none that is read.
const HfModelType* type_of_text(const JsonObject& text, const HfModelType& type) {
  if (!type.nested) return &type;
  const std::string word = text.text("model_type", "");
  const HfModelType* const own = hf_model_type(word);
  if (own && !own->nested) return own;
  if (type.row) return &type;
  if (word.empty()) return hf_model_type(name_of(type.family));
  text.refuse("model_type", (word.empty() ? "missing" : "= " + shown(word)) + "; legal: " + hf_model_types());
  return nullptr;
}

// Attention that sees what follows, which some models of embeddings have.
void refuse_both_directions(const JsonObject& config) {
  if (config.flag("use_bidirectional_attention", false))
    config.refuse("use_bidirectional_attention", "= true: not available; legal: false");
  if (!config.flag("is_causal", true)) config.refuse("is_causal", "= false: not available; legal: true");
}

void read_model(const JsonObject& config, const json& root, const HfModelType& type, bool multi_token,
                ModelDeck& model) {
  const JsonObject text(text_of(config, root, type), config.name() + (type.nested ? ": text_config" : ""),
                        config.report());
  const HfModelType* const own = type_of_text(text, type);
  if (!own) return;
  model.family = own->family;
  if (model.family == Family::gpt2)
    read_gpt2(text, model);
  else
    read_rotary_family(text, *own->row, model);
  // What the image model's map says of the whole counts.
  if (type.nested) model.tied_embeddings = config.flag("tie_word_embeddings", model.tied_embeddings);
  refuse_both_directions(text);
  if (type.nested) refuse_both_directions(config);
  if (config.has("transformers_weights"))
    config.refuse("transformers_weights", "= " + shown_json(*config.find("transformers_weights")) +
                                              ": not available; legal: absent, and the weights in model.safetensors");
  if (multi_token && text.flag("mtp_use_dedicated_embeddings", false))
    text.refuse("mtp_use_dedicated_embeddings", "= true with model.mtp_depth: not available; legal: false");
  if (text.has("per_layer_config")) text.refuse("per_layer_config", "not available; legal: absent");
  model.initial_std = text.amount("initializer_range", model.initial_std);
}

// The deck's own keys, which no config.json has or decides; and those of which config.json has a value that the deck
// may replace.
constexpr const char* own_keys =
    "hf load_weights tokenizer new_rows dropout attention_soft_cap logit_soft_cap residual_scaling "
    "auxiliary_loss_scope "
    "mtp_depth mtp_loss_factor forced_balance router_bias_rate router_z_coefficient router_jitter capacity_factor "
    "capacity_drop dispatch dispatch_rows";
constexpr const char* replaceable_keys = "initial_std auxiliary_loss_coefficient";

void take_own_keys(const ModelDeck& from_deck, ModelDeck& model) {
  Deck theirs, ours;
  theirs.model = from_deck;
  ours.model = std::move(model);
  const auto take = [&](const Key& key) {
    std::visit([&](const auto& kind) { kind.access.set(ours, kind.access.get(theirs)); }, key.kind);
  };
  for (const std::string_view name : parts_of(own_keys, ' ')) take(*find_key("model", std::string(name)));
  for (const std::string& name : from_deck.given)
    if (has_word(replaceable_keys, name)) take(*find_key("model", name));
  model = std::move(ours.model);
  model.given = from_deck.given;
  model.adapter = from_deck.adapter;
}

// Keys of which 0 means that the value comes from elsewhere.
constexpr const char* derived_keys =
    "layers width heads kv_heads head_dim ffn vocabulary expert_ffn value_dim router_groups_used";

// model.new_rows: the vocabulary is the deck's, larger than config.json's.
void extend_vocabulary(const ModelDeck& from_deck, ModelDeck& model, const std::string& file, Report& report) {
  if (model.new_rows == NewRows::none) return;
  if (from_deck.vocabulary > model.vocabulary) {
    model.base_vocabulary = model.vocabulary;
    model.vocabulary = from_deck.vocabulary;
    return;
  }
  Deck deck;
  deck.model = from_deck;
  report.add("model.new_rows = " + value_text(*find_key("model", "new_rows"), deck) +
             (from_deck.vocabulary > 0 ? " with model.vocabulary = " + std::to_string(from_deck.vocabulary)
                                       : " without model.vocabulary") +
             ", and " + file + " says " + std::to_string(model.vocabulary) +
             "; legal: new_rows: none, or a vocabulary that is larger than this");
}

// Keys of the deck that say something else than config.json.
void refuse_conflicts(const ModelDeck& from_deck, const ModelDeck& model, const std::string& file, Report& report) {
  Deck theirs, ours;
  theirs.model = model;
  ours.model = from_deck;
  for (const auto& name : from_deck.given) {
    const Key* key = find_key("model", name);
    if (!key || has_word(own_keys, name) || has_word(replaceable_keys, name)) continue;
    if (has_word(derived_keys, name) && is_default(*key, ours)) continue;
    const std::string deck_value = value_text(*key, ours), file_value = value_text(*key, theirs);
    if (deck_value == file_value) continue;
    const bool more = name == "vocabulary" && from_deck.vocabulary > model.vocabulary;
    report.add(key->qualified() + " = " + deck_value + ", but " + file + " says " + file_value +
               "; legal: leave it out" + (more ? ", or model.new_rows: mean | noise, which add rows" : ""));
  }
}

}  // namespace

ModelDeck read_hf_config(const std::string& directory, const ModelDeck& from_deck) {
  if (const std::string problem = not_a_model(directory); !problem.empty()) throw BadInput(problem);
  const std::string file = directory + "/config.json";
  const json root = parse_json(read_text_file(file, most_config_bytes, "model.hf:"), file, {});
  Report report;
  const JsonObject config(root, file, report);
  ModelDeck model;
  if (const HfModelType* const type = read_type(config))
    read_model(config, root, *type, from_deck.mtp_depth > 0, model);
  check_quantization(config, model.family);
  take_own_keys(from_deck, model);
  model.hf = directory;
  report.throw_if_any(file);
  Report beside;
  extend_vocabulary(from_deck, model, file, beside);
  if (beside.empty()) refuse_conflicts(from_deck, model, file, beside);
  beside.throw_if_any("the deck's model section beside " + file);
  return model;
}

}  // namespace forge
