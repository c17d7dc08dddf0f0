#include "hf/adapter_config.hpp"

#include <cmath>
#include <set>
#include <string_view>

#include "config/check_parts.hpp"
#include "config/family.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "hf/json_input.hpp"

namespace forge {

namespace {

using nlohmann::json;

std::set<std::string> targets_of(const ModelDeck& model) {
  const std::vector<std::string> chosen =
      model.adapter.targets.empty() ? adapter_targets(model) : model.adapter.targets;
  return {chosen.begin(), chosen.end()};
}

// "down_proj, q_proj".
std::string listed(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Of a list of names; of PEFT's word for all linear layers those of the deck, where no router is among them.
void check_targets(const JsonObject& config, const ModelDeck& model) {
  const json* const named = config.find("target_modules");
  const std::set<std::string> own = targets_of(model);
  std::set<std::string> theirs;
  if (named && named->is_string() && *named == "all-linear" && model.experts == 0) {
    const std::vector<std::string> all = adapter_targets(model);
    theirs = {all.begin(), all.end()};
  } else if (named && named->is_array()) {  // PEFT writes whole names of a few modules; the tensors say which layers
    for (const json& name : *named)
      if (name.is_string()) {
        const auto whole = name.get<std::string>();
        theirs.insert(whole.substr(whole.rfind('.') + 1));
      }
  }
  if (theirs != own)
    config.refuse("target_modules", "= " +
                                        (!named              ? "absent"
                                         : named->is_array() ? "[" + listed(theirs) + "]"
                                                             : shown_json(*named)) +
                                        ", and adapter.targets are " + listed(own) + "; legal: the same names");
}

// PEFT's words for qwen2_moe, which it translates for other families of experts alone.
bool names_packed_experts(const ModelDeck& model) {
  return model.family == Family::qwen2_moe && model.experts > 0;
}

// With transformers 5 PEFT takes target_modules of experts' names as the packed tensors of experts alone. Where dense
// layers and shared experts name their matrices likewise, they are those parameters for it. It reads gates and ups of
// experts where their downs have adapters, too, which is a drawn A and a zero B where the files have none.
std::set<std::string> target_parameters_of(const ModelDeck& model) {
  const TensorNames& names = tensor_names(model.family);
  if (model.experts == 0 || !names.adapted_experts) return {};
  const bool own_words = names_packed_experts(model);
  const bool alike = !own_words && std::string_view(names.gate) == TensorNames{}.gate;
  const bool dense = model.first_dense_layers > 0 || model.moe_every > 1 || !model.dense_layers.empty();
  const std::set<std::string> targets = targets_of(model);
  std::set<std::string> parameters;
  for (const char* name : {names.gate, names.up, names.down}) {
    if (!alike || targets.count(name) == 0) continue;
    if (dense) parameters.insert("mlp." + std::string(name) + ".weight");
    if (model.shared_expert_ffn > 0) parameters.insert(std::string(names.shared) + name + ".weight");
  }
  const bool gate = targets.count(names.gate) > 0, down = targets.count(names.down) > 0;
  if (own_words && gate) parameters.insert("experts.gate_up_proj");
  if (own_words ? gate || down : gate && !down) parameters.insert("experts.down_proj");
  return parameters;
}

// The packed tensor of gates and ups has both their ranks.
nlohmann::ordered_json pattern_of_packed(const ModelDeck& model, const nlohmann::ordered_json& value) {
  nlohmann::ordered_json pattern = nlohmann::ordered_json::object();
  if (names_packed_experts(model) && targets_of(model).count("gate_proj") > 0) pattern[".*\\.gate_up_proj"] = value;
  return pattern;
}

// Absent, as in earlier files of forge's, or those that forge writes.
void check_target_parameters(const JsonObject& config, const ModelDeck& model) {
  constexpr const char* key = "target_parameters";
  const json* const named = config.find(key);
  if (!named || (named->is_structured() && named->empty())) return;
  const std::set<std::string> own = target_parameters_of(model);
  std::set<std::string> theirs;
  if (named->is_array())
    for (const json& name : *named) theirs.insert(name.is_string() ? name.get<std::string>() : shown_json(name));
  if (!named->is_array() || theirs != own)
    config.refuse(key, "= " + (named->is_array() ? "[" + listed(theirs) + "]" : shown_json(*named)) +
                           ", which forge doesn't compute (PEFT's packed experts share A); legal: absent" +
                           (own.empty() ? "" : ", or [" + listed(own) + "]"));
}

// Likewise of alpha_pattern and rank_pattern.
void check_pattern(const JsonObject& config, const char* key, const nlohmann::ordered_json& own) {
  const json* const theirs = config.find(key);
  if (!theirs || (theirs->is_structured() && theirs->empty()) || *theirs == json(own)) return;
  config.refuse(key, "= " + shown_json(*theirs) + ", which forge doesn't compute; legal: absent" +
                         (own.empty() ? "" : ", or " + own.dump()));
}

// A whole number where it is one.
nlohmann::ordered_json shortest_number(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return value == static_cast<double>(whole) ? nlohmann::ordered_json(whole) : nlohmann::ordered_json(value);
}

// PEFT doubles rank and alpha of experts' gates and ups, which keeps the scale alpha / r, not alpha / sqrt(r): beside
// experts alpha is written for the former.
bool writes_stabilised(const ModelDeck& model) {
  return model.adapter.rank_stabilised && model.experts == 0;
}
double written_alpha(const ModelDeck& model) {
  const AdapterDeck& a = model.adapter;
  return a.rank_stabilised && model.experts > 0 ? a.alpha * std::sqrt(static_cast<double>(a.rank)) : a.alpha;
}

void check_scale(const JsonObject& config, const ModelDeck& model) {
  const AdapterDeck& a = model.adapter;
  const double alpha = config.number("lora_alpha", 8, 0);
  const bool stabilised = config.flag("use_rslora", false);
  if (stabilised == writes_stabilised(model) && alpha == written_alpha(model)) return;
  if (alpha != a.alpha)
    config.refuse("lora_alpha", "= " + format_exact(alpha) + ", and adapter.alpha = " + format_exact(a.alpha) +
                                    " (--set adapter.alpha); legal: the same numbers");
  if (stabilised != a.rank_stabilised)
    config.refuse("use_rslora", std::string("= ") + (stabilised ? "true" : "false") +
                                    ", and adapter.rank_stabilised is not; legal: the same values");
}

// How A and B began: others than these (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) change the model's own matrices, too.
void check_beginning(const JsonObject& config) {
  constexpr const char* key = "init_lora_weights";
  const json* const value = config.find(key);
  if (!value || value->is_null() || value->is_boolean() || *value == "gaussian" || *value == "eva" ||
      *value == "orthogonal")
    return;
  config.refuse(key, "= " + shown_json(*value) +
                         ", which changes the model's own matrices; legal: true | false | \"gaussian\" | \"eva\" | "
                         "\"orthogonal\"");
}

// Keys of other kinds of adapters: absent, null, false or empty.
void refuse_others(const JsonObject& config) {
  for (const char* key : {"use_dora", "modules_to_save", "layers_to_transform", "exclude_modules", "layer_replication",
                          "lora_bias", "use_qalora", "use_bdlora", "alora_invocation_tokens", "arrow_config",
                          "kasa_config", "monteclora_config", "velora_config", "trainable_token_indices"}) {
    const json* const value = config.find(key);
    if (!value || (value->is_boolean() && !value->get<bool>()) || (value->is_structured() && value->empty())) continue;
    config.refuse(key, "= " + shown_json(*value) + ", which forge doesn't compute; legal: absent");
  }
}

}  // namespace

void check_adapter_config(const std::string& directory, const ModelDeck& model) {
  const std::string file = directory + "/adapter_config.json";
  const json root = parse_json(read_text_file(file, most_config_bytes, "adapter.load:"), file, {});
  Report report;
  const JsonObject config(root, file, report);
  const AdapterDeck& a = model.adapter;
  if (const std::string type = config.text("peft_type", ""); type != "LORA")
    config.refuse("peft_type", "= \"" + type + "\"; legal: LORA");
  if (const std::string bias = config.text("bias", "none"); bias != "none")
    config.refuse("bias", "= " + bias + "; legal: none");
  if (const std::int64_t rank = config.integer("r", 8, 1, most_size); rank != a.rank)
    config.refuse("r", "= " + std::to_string(rank) + ", and adapter.rank = " + std::to_string(a.rank) +
                           " (--set adapter.rank); legal: the same numbers");
  check_scale(config, model);
  check_targets(config, model);
  check_target_parameters(config, model);
  check_pattern(config, "rank_pattern", pattern_of_packed(model, 2 * a.rank));
  check_pattern(config, "alpha_pattern", pattern_of_packed(model, shortest_number(2 * written_alpha(model))));
  check_beginning(config);
  refuse_others(config);
  report.throw_if_any(file);
}

std::string write_adapter_config(const ModelDeck& model) {
  const AdapterDeck& a = model.adapter;
  nlohmann::ordered_json config;
  config["peft_type"] = "LORA";
  config["task_type"] = "CAUSAL_LM";
  config["base_model_name_or_path"] = model.hf;
  config["r"] = a.rank;
  config["lora_alpha"] = shortest_number(written_alpha(model));
  config["use_rslora"] = writes_stabilised(model);
  config["lora_dropout"] = a.dropout;
  config["target_modules"] = targets_of(model);
  if (const auto parameters = target_parameters_of(model); !parameters.empty())
    config["target_parameters"] = parameters;
  if (const auto ranks = pattern_of_packed(model, 2 * a.rank); !ranks.empty()) {
    config["rank_pattern"] = ranks;
    config["alpha_pattern"] = pattern_of_packed(model, shortest_number(2 * written_alpha(model)));
  }
  config["fan_in_fan_out"] = tensor_names(model.family).gpt2;
  config["bias"] = "none";
  config["inference_mode"] = true;
  config["init_lora_weights"] = true;
  return config.dump(2) + "\n";
}

}  // namespace forge
