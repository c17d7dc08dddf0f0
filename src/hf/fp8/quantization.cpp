#include "hf/fp8/quantization.hpp"

#include "config/family.hpp"
#include "config/text.hpp"

namespace forge {

using nlohmann::json;

namespace {

constexpr const char* section = "quantization_config";

// A key with one legal word; `required`: its absence means something else.
void check_word(const JsonObject& q, const char* key, const char* legal, bool required) {
  const json* value = q.find(key);
  if (!value && !required) return;
  if (value && *value == legal) return;
  const std::string found =
      !value ? "missing" : "= " + (value->is_string() ? shown(value->get<std::string>()) : shown_json(*value));
  q.refuse(key, found + "; legal: " + legal);
}

}  // namespace

void check_quantization(const JsonObject& config, Family family) {
  const json* root = config.find(section);
  if (!root) return;
  if (!root->is_object()) return config.refuse(section, "= " + shown_json(*root) + "; legal: a map");
  if (tensor_names(family).gpt2)
    return config.refuse(
        section, "this model_type stores matrices (in, out), and no library has block scales of those; legal: absent");
  const JsonObject q(*root, config.name() + ": " + section, config.report());
  if (tensor_names(family).packed) return check_word(q, "quant_method", "mxfp4", true);
  check_word(q, "quant_method", "fp8", true);
  check_word(q, "fmt", "e4m3", false);
  check_word(q, "activation_scheme", "dynamic", false);
  const json* size = q.find("weight_block_size");
  if (!size)
    q.refuse("weight_block_size", "missing; legal: [128, 128]");
  else if (*size != json{128, 128})
    q.refuse("weight_block_size", "= " + shown_json(*size) + "; legal: [128, 128]");
}

nlohmann::ordered_json quantization_config(const std::vector<std::string>& plain) {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"weight_block_size", {128, 128}},
          {"activation_scheme", "dynamic"},
          {"modules_to_not_convert", plain}};
}

bool has_quantization(const std::string& directory) {
  const std::string file = directory + "/config.json";
  const json root = parse_json(read_text_file(file, most_config_bytes, "model.hf:"), file, {});
  return root.contains(section) && !root[section].is_null();
}

}  // namespace forge
