#include "hf/rope.hpp"

#include <algorithm>

#include "config/key_bounds.hpp"
#include "config/text.hpp"
#include "core/to_size.hpp"

namespace forge {

using nlohmann::json;

namespace {

// The map that holds the parameters, nullptr when there is none, and its key.
const json* find_parameters(const JsonObject& config, const char*& key) {
  for (const char* candidate : {"rope_scaling", "rope_parameters"}) {
    const json* found = config.find(candidate);
    if (!found) continue;
    key = candidate;
    if (!found->is_object()) config.refuse(key, "= " + shown_json(*found) + "; legal: a map or null");
    if (found->is_object() && !found->empty()) return found;
  }
  return nullptr;
}

// The method, under its newer or its older key; of a family that may have it longrope, which was su once.
RopeScaling read_method(const JsonObject& rope, bool longrope = false) {
  const std::string older = rope.text("type", "default"), method = rope.text("rope_type", older);
  if (rope.has("type") && rope.has("rope_type") && older != method)
    rope.refuse("rope_type",
                "= " + shown(method) + " but type = " + shown(older) + "; legal: one of them, or both alike");
  if (method == "default") return RopeScaling::none;
  if (method == "linear" && !longrope) return RopeScaling::linear;
  if (method == "llama3" && !longrope) return RopeScaling::llama3;
  if (method == "yarn" && !longrope) return RopeScaling::yarn;
  if ((method == "longrope" || method == "su") && longrope) return RopeScaling::longrope;
  rope.refuse(
      rope.has("rope_type") ? "rope_type" : "type",
      "= " + shown(method) + "; legal: " + (longrope ? "default | longrope | su" : "default | linear | llama3 | yarn"));
  return RopeScaling::none;
}

// Of a family that may rotate a part of each head; another one rotates all of it.
void read_fraction(const JsonObject& object, const HfFamily& family, ModelDeck& model) {
  const char* const key = "partial_rotary_factor";
  double fraction = object.number(key, model.rope_fraction, 0);
  if (family.rotary_dim && !object.has(key) && object.has("rotary_dim"))
    fraction = static_cast<double>(object.integer("rotary_dim", model.head_dim, 1, most_size)) /
               static_cast<double>(model.head_dim);
  if (fraction > 1 || (family.rope_fraction == 0 && fraction != 1))
    return object.has(key)
               ? object.refuse(key, "= " + shown_json(*object.find(key)) +
                                        "; legal: " + (family.rope_fraction == 0 ? "1" : "more than 0, at most 1"))
               : object.refuse("rotary_dim",
                               "= " + shown_json(*object.find("rotary_dim")) + "; legal: at most head_dim");
  model.rope_fraction = fraction;
}

// no_rope_layers of a model in which each `every`-th layer has no positions: a 0 for it, a 1 for the others.
json rotating_layers(std::int64_t layers, std::int64_t every) {
  json list = json::array();
  for (std::int64_t number = 1; number <= layers; ++number) list.push_back(every == 0 || number % every != 0 ? 1 : 0);
  return list;
}

void read_layers_without(const JsonObject& config, const HfFamily& family, ModelDeck& model) {
  if (family.no_rope_every < 0) return;
  std::int64_t every = config.integer("no_rope_layer_interval", family.no_rope_every, 1, most_layers);
  if (const json* const list = config.find("no_rope_layers")) {
    const std::int64_t first = list->is_array() ? std::find(list->begin(), list->end(), 0) - list->begin() : 0;
    every = first < static_cast<std::int64_t>(list->size()) ? first + 1 : 0;
    if (std::ssize(*list) != model.layers || *list != rotating_layers(model.layers, every))
      config.refuse("no_rope_layers", "legal: " + std::to_string(model.layers) +
                                          " entries of 0 and 1, 0 for every layer whose number, counted from 1, is a "
                                          "multiple of one number");
  }
  model.no_rope_every = every <= model.layers ? every : 0;
}

std::int64_t original_positions(const JsonObject& config, const JsonObject& rope, const ModelDeck& model) {
  const char* key = "original_max_position_embeddings";
  return (config.has(key) ? config : rope).integer(key, model.max_positions, 1, most_positions);
}

void read_factor(const JsonObject& rope, ModelDeck& model) {
  if (!rope.has("factor")) rope.refuse("factor", "missing; legal: number > 0");
  model.rope_factor = rope.number("factor", 1, 0);
}

void read_llama3(const JsonObject& config, const JsonObject& rope, ModelDeck& model) {
  read_factor(rope, model);
  for (const char* key : {"low_freq_factor", "high_freq_factor"})
    if (!rope.has(key)) rope.refuse(key, "missing; legal: number > 0");
  model.rope_low_frequency_factor = rope.number("low_freq_factor", 1, 0);
  model.rope_high_frequency_factor = rope.number("high_freq_factor", 4, 0);
  model.rope_original_positions = original_positions(config, rope, model);
}

// Zero stands for the default in beta_fast and beta_slow, and for absence in mscale and mscale_all_dim.
void read_yarn(const JsonObject& config, const JsonObject& rope, ModelDeck& model) {
  const ModelDeck standard;
  model.rope_original_positions = original_positions(config, rope, model);
  model.rope_factor = rope.number(
      "factor", static_cast<double>(model.max_positions) / static_cast<double>(model.rope_original_positions), 0);
  model.rope_attention_factor = rope.number("attention_factor", 0, 0);
  const double fast = rope.amount("beta_fast", 0), slow = rope.amount("beta_slow", 0);
  model.rope_beta_fast = fast > 0 ? fast : standard.rope_beta_fast;
  model.rope_beta_slow = slow > 0 ? slow : standard.rope_beta_slow;
  model.rope_mscale = rope.amount("mscale", 0);
  model.rope_mscale_all_dim = rope.amount("mscale_all_dim", 0);
  model.rope_truncate = rope.flag("truncate", true);
}

std::vector<double> read_divisors(const JsonObject& rope, const char* key, std::size_t count) {
  const json* const list = rope.find(key);
  const bool good = list && list->is_array() && list->size() == count &&
                    std::all_of(list->begin(), list->end(),
                                [](const json& item) { return item.is_number() && item.get<double>() > 0; });
  if (good) return list->get<std::vector<double>>();
  rope.refuse(key, (list ? "= " + shown_json(*list) : "missing") + "; legal: " + std::to_string(count) +
                       " numbers, more than 0");
  return {};
}

// Absent keys have the defaults of transformers' class.
void read_longrope(const JsonObject& config, const JsonObject& rope, const HfFamily& family, ModelDeck& model) {
  model.rope_original_positions =
      config.integer("original_max_position_embeddings", family.sizes.positions, 1, most_positions);
  model.rope_factor = rope.number(
      "factor", static_cast<double>(model.max_positions) / static_cast<double>(model.rope_original_positions), 0);
  model.rope_attention_factor = rope.number("attention_factor", 0, 0);
  const auto rotated = static_cast<std::int64_t>(static_cast<double>(model.head_dim) * model.rope_fraction);
  model.rope_short_factor = read_divisors(rope, "short_factor", to_size(rotated / 2));
  model.rope_long_factor = read_divisors(rope, "long_factor", to_size(rotated / 2));
}

bool has_nested_maps(const json& parameters) {
  for (const auto& value : parameters)
    if (value.is_object()) return true;
  return false;
}

// The method and its parameters.
void read_scaling(const JsonObject& config, const JsonObject& rope, const HfFamily& family, ModelDeck& model) {
  model.rope_scaling = read_method(rope, family.longrope);
  // This family's scores are multiplied by it under any scaling; forge has it with yarn.
  if (family.latent && model.rope_scaling != RopeScaling::none && model.rope_scaling != RopeScaling::yarn &&
      rope.amount("mscale_all_dim", 0) > 0)
    rope.refuse("mscale_all_dim", "not available without yarn; legal: absent or 0");
  if (model.rope_scaling == RopeScaling::linear) read_factor(rope, model);
  if (model.rope_scaling == RopeScaling::llama3) read_llama3(config, rope, model);
  if (model.rope_scaling == RopeScaling::yarn) read_yarn(config, rope, model);
  if (model.rope_scaling == RopeScaling::longrope) read_longrope(config, rope, family, model);
}

// What Ministral 3's class takes where nothing is said.
json ministral_parameters() {
  return {{"rope_type", "yarn"},
          {"rope_theta", 1e6},
          {"factor", 16.0},
          {"original_max_position_embeddings", 16384},
          {"beta_fast", 32.0},
          {"beta_slow", 1.0},
          {"mscale_all_dim", 1.0},
          {"mscale", 1.0},
          {"llama_4_scaling_beta", 0.1}};
}

// What gpt-oss's class takes where nothing is said.
json gpt_oss_parameters() {
  return {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
          {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
}
json absent_parameters(const HfFamily& family) {
  return family.query_position_scale ? ministral_parameters() : family.one_rope ? gpt_oss_parameters() : json();
}

// The scale of queries by their position, in units of the original context.
void read_query_scale(const JsonObject& rope, ModelDeck& model) {
  const char* const key = "llama_4_scaling_beta";
  if (!rope.has(key)) return rope.refuse(key, "missing; legal: number, 0 or more");
  model.query_position_scale = rope.amount(key, 0);
  if (model.query_position_scale > 0 && model.rope_scaling != RopeScaling::yarn &&
      model.rope_scaling != RopeScaling::llama3)
    rope.refuse(key, "= " + shown_json(*rope.find(key)) + " needs rope_type: yarn or llama3; legal: 0");
}

// Parameters by the type of a layer, in maps in rope_parameters. rope_scaling, and a rope_theta outside of them, are
// those of layers without a window, as the class has it.
void read_rope_by_type(const JsonObject& config, const HfFamily& family, ModelDeck& model) {
  const json empty = json::object();
  const auto map = [&](const JsonObject& in, const char* key) -> json {
    const json* const found = in.find(key);
    if (found && !found->is_object()) in.refuse(key, "= " + shown_json(*found) + "; legal: a map or null");
    return found && found->is_object() ? *found : empty;
  };
  const json types = map(config, "rope_parameters");
  if (!types.empty() && !has_nested_maps(types))
    config.refuse("rope_parameters", "legal for this model_type: maps full_attention and sliding_attention");
  const JsonObject by_type(types, config.name() + ": rope_parameters", config.report());
  json full = map(by_type, "full_attention");
  const json windowed = map(by_type, "sliding_attention");
  full.update(map(config, "rope_scaling"));
  const JsonObject rope(full, config.name() + ": rope parameters of full_attention", config.report());
  const JsonObject inner(windowed, config.name() + ": rope_parameters: sliding_attention", config.report());
  model.rope_theta = rope.number("rope_theta", config.number("rope_theta", family.rope_theta, 0), 0);
  read_scaling(config, rope, family, model);
  if (!model.rope_truncate)
    rope.refuse("truncate", "= false, which transformers doesn't read in parameters of a layer type; legal: true");
  if (model.sliding_window == 0) return;
  const char* const key = family.window_theta_key;
  const double absent = family.window_theta > 0 ? family.window_theta : family.rope_theta;
  const double theta = inner.number("rope_theta", *key ? config.number(key, absent, 0) : absent, 0);
  if (read_method(inner) != RopeScaling::none) {
    if (windowed != full || theta != model.rope_theta)
      inner.refuse("rope_type", "= " + shown(inner.text("rope_type", "")) +
                                    "; legal: default, or all parameters as those of full_attention");
  } else if (model.rope_scaling != RopeScaling::none || theta != model.rope_theta) {
    model.rope_window_theta = theta;
  }
}

// The parameters of the model's method, with their key for it.
nlohmann::ordered_json written_scaling(const ModelDeck& model) {
  nlohmann::ordered_json rope;
  rope["rope_type"] = model.rope_scaling == RopeScaling::none     ? "default"
                      : model.rope_scaling == RopeScaling::linear ? "linear"
                      : model.rope_scaling == RopeScaling::llama3 ? "llama3"
                                                                  : "yarn";
  if (model.rope_scaling == RopeScaling::none) return rope;
  rope["factor"] = model.rope_factor;
  if (model.rope_scaling != RopeScaling::linear)
    rope["original_max_position_embeddings"] = model.rope_original_positions;
  if (model.rope_scaling == RopeScaling::llama3) {
    rope["low_freq_factor"] = model.rope_low_frequency_factor;
    rope["high_freq_factor"] = model.rope_high_frequency_factor;
  }
  if (model.rope_scaling == RopeScaling::yarn) {
    rope["beta_fast"] = model.rope_beta_fast;
    rope["beta_slow"] = model.rope_beta_slow;
    if (model.rope_attention_factor > 0) rope["attention_factor"] = model.rope_attention_factor;
    if (model.rope_mscale > 0) rope["mscale"] = model.rope_mscale;
    if (model.rope_mscale_all_dim > 0) rope["mscale_all_dim"] = model.rope_mscale_all_dim;
    rope["truncate"] = model.rope_truncate;
  }
  return rope;
}

// As older versions of the class want it, which know three keys, where the further ones have the class's own values.
void write_longrope(const ModelDeck& model, nlohmann::ordered_json& config) {
  nlohmann::ordered_json rope;
  rope["type"] = "longrope";
  rope["short_factor"] = model.rope_short_factor;
  rope["long_factor"] = model.rope_long_factor;
  config["original_max_position_embeddings"] = model.rope_original_positions;
  const double positions = config.value("max_position_embeddings", 0.0);
  if (model.rope_factor != positions / static_cast<double>(model.rope_original_positions))
    rope["factor"] = model.rope_factor;
  if (model.rope_attention_factor > 0) rope["attention_factor"] = model.rope_attention_factor;
  config["rope_scaling"] = rope;
}

// As read_rope_by_type() reads them. transformers 4 knows rope_scaling alone, which stretches layers without a window.
void write_rope_by_type(const ModelDeck& model, const HfFamily& family, nlohmann::ordered_json& config) {
  nlohmann::ordered_json full = written_scaling(model), windowed = full;
  if (model.rope_scaling != RopeScaling::none && (model.sliding_window == 0 || model.rope_window_theta > 0))
    config["rope_scaling"] = full;
  full["rope_theta"] = windowed["rope_theta"] = model.rope_theta;
  if (model.rope_window_theta > 0) windowed = {{"rope_type", "default"}, {"rope_theta", model.rope_window_theta}};
  if (*family.window_theta_key) config[family.window_theta_key] = windowed["rope_theta"];
  config["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", windowed}};
}

// The class asks for the original context even where nothing is stretched.
void write_scaled_queries(const ModelDeck& model, nlohmann::ordered_json& config) {
  nlohmann::ordered_json rope = written_scaling(model);
  rope["rope_theta"] = model.rope_theta;
  rope["llama_4_scaling_beta"] = model.query_position_scale;
  if (!rope.contains("original_max_position_embeddings"))
    rope["original_max_position_embeddings"] = std::max<std::int64_t>(model.max_positions, 1);
  config["rope_parameters"] = rope;
}

}  // namespace

void read_hf_rope(const JsonObject& config, const HfFamily& family, ModelDeck& model) {
  if (family.rope_by_type()) return read_rope_by_type(config, family, model);
  model.rope_theta = config.number("rope_theta", model.rope_theta, 0);
  model.rope_fraction = family.rope_fraction > 0 ? family.rope_fraction : 1;
  read_fraction(config, family, model);
  read_layers_without(config, family, model);
  const char* key = nullptr;
  const json* parameters = find_parameters(config, key);
  const json absent = absent_parameters(family);
  const bool empty = key != nullptr;  // a map without parameters: those of no method
  if (!parameters && !absent.is_null() && !empty) parameters = &absent, key = "rope_parameters";
  if (!parameters) return;
  if (has_nested_maps(*parameters)) {
    config.refuse(key, "holds parameters per layer type; legal: the same for all layers");
    return;
  }
  const JsonObject rope(*parameters, config.name() + ": " + key, config.report());
  model.rope_theta = rope.number("rope_theta", model.rope_theta, 0);
  read_fraction(rope, family, model);
  read_scaling(config, rope, family, model);
  if (family.query_position_scale) read_query_scale(rope, model);
}

void write_hf_rope(const ModelDeck& model, const HfFamily& family, nlohmann::ordered_json& config) {
  config["rope_theta"] = model.rope_theta;
  if (family.rope_fraction > 0) config["partial_rotary_factor"] = model.rope_fraction;
  if (family.rotary_dim)
    config["rotary_dim"] = static_cast<std::int64_t>(static_cast<double>(model.head_dim) * model.rope_fraction);
  if (family.query_position_scale) return write_scaled_queries(model, config);
  if (family.rope_by_type()) return write_rope_by_type(model, family, config);
  if (family.no_rope_every >= 0) config["no_rope_layers"] = rotating_layers(model.layers, model.no_rope_every);
  if (model.rope_scaling == RopeScaling::longrope) return write_longrope(model, config);
  if (model.rope_scaling == RopeScaling::none && absent_parameters(family).is_null()) {
    config["rope_scaling"] = nullptr;
    return;
  }
  config["rope_scaling"] = written_scaling(model);
}

}  // namespace forge
