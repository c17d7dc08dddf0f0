#include "hf/special_ids.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "config/text.hpp"
#include "hf/json_input.hpp"

namespace forge {

using nlohmann::json;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t most_id = std::int64_t{1} << 30;

bool is_id(const json& value) {
  return value.is_number_integer() && value <= most_id;
}

// A number, or a list of them.
std::vector<std::int32_t> ids_of(const JsonObject& file, const char* key) {
  const json* const value = file.find(key);
  if (!value) return {};
  const json list = value->is_array() ? *value : json::array({*value});
  std::vector<std::int32_t> ids;
  for (const json& item : list) {
    if (!is_id(item)) {
      file.refuse(key, "= " + shown_json(item) + "; legal: an id, or a list of ids");
      return {};
    }
    if (item >= 0) ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

std::optional<std::int32_t> id_of(const JsonObject& file, const char* key) {
  const std::vector<std::int32_t> ids = ids_of(file, key);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

}  // namespace

SpecialIds read_special_ids(const std::string& directory) {
  SpecialIds ids;
  Report report;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = directory + "/" + name;
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;
    const json root = parse_json(read_text_file(path, most_config_bytes, "model.hf:"), path, {});
    const auto take = [&](const JsonObject& file) {
      if (ids.ends.empty()) ids.ends = ids_of(file, "eos_token_id");
      if (!ids.begin) ids.begin = id_of(file, "bos_token_id");
      if (!ids.padding) ids.padding = id_of(file, "pad_token_id");
    };
    const JsonObject file(root, path, report);
    take(file);
    // Of a text model beside an image model.
    if (const json* const text = file.find("text_config"); text && text->is_object())
      take(JsonObject(*text, path + ": text_config", report));
  }
  report.throw_if_any(directory);
  return ids;
}

std::string generation_config(const SpecialIds& ids, const std::string& source) {
  Json config = source.empty() ? Json::object() : Json::parse(source, nullptr, false);
  if (!config.is_object()) config = Json::object();
  if (ids.ends.size() == 1) config["eos_token_id"] = ids.ends.front();
  if (ids.ends.size() > 1) config["eos_token_id"] = ids.ends;
  if (ids.begin) config["bos_token_id"] = *ids.begin;
  if (ids.padding) config["pad_token_id"] = *ids.padding;
  return config.dump(2) + "\n";
}

}  // namespace forge
