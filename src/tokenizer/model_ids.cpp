#include "tokenizer/model_ids.hpp"

#include <algorithm>
#include <filesystem>

#include "config/text.hpp"
#include "hf/json_input.hpp"
#include "tokenizer/files.hpp"

namespace forge {

namespace {

constexpr std::size_t most_bytes = std::size_t{16} << 20;

// Of a token that tokenizer_config.json names: "</s>", or a map that has it as "content".
std::optional<std::int32_t> named_id(const nlohmann::json& config, const char* key, const Tokenizer& tokenizer) {
  const auto at = config.find(key);
  if (at == config.end()) return {};
  const nlohmann::json& token = at->is_object() && at->contains("content") ? (*at)["content"] : *at;
  const std::int32_t id = token.is_string() ? tokenizer.id_of(token.get<std::string>()) : -1;
  return id < 0 ? std::nullopt : std::optional(id);
}

// What no file of the model says: where the tokenizer stands, its configuration does.
void take_named_ids(const std::string& path, const Tokenizer& tokenizer, SpecialIds& ids) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string file =
      (fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path()) / "tokenizer_config.json";
  if (!fs::is_regular_file(file, ignored)) return;
  const auto config = nlohmann::json::parse(read_text_file(file, most_bytes, "the tokenizer"), nullptr, false);
  if (!config.is_object()) return;
  if (!ids.begin) ids.begin = named_id(config, "bos_token", tokenizer);
  if (!ids.padding) ids.padding = named_id(config, "pad_token", tokenizer);
}

}  // namespace

std::string tokenizer_path(const ModelDeck& model) {
  if (!model.tokenizer.empty()) return model.tokenizer;
  return !model.hf.empty() && has_tokenizer(model.hf) ? model.hf : "";
}

SpecialIds model_ids(const Deck& deck, const Tokenizer* tokenizer) {
  SpecialIds ids;
  if (!deck.model.hf.empty()) ids = read_special_ids(deck.model.hf);
  const auto add_end = [&](std::int64_t id) {
    if (id >= 0 && std::find(ids.ends.begin(), ids.ends.end(), id) == ids.ends.end())
      ids.ends.push_back(static_cast<std::int32_t>(id));
  };
  add_end(deck.data.document_end_token);
  if (tokenizer) {
    if (ids.ends.empty()) add_end(tokenizer->document_end());
    take_named_ids(tokenizer_path(deck.model), *tokenizer, ids);
  }
  // Files of other models, say, with ids that this one hasn't.
  std::erase_if(ids.ends, [&](std::int32_t id) { return id >= deck.model.vocabulary; });
  return ids;
}

}  // namespace forge
