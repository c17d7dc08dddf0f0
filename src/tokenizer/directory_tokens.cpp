#include "tokenizer/directory_tokens.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "config/text.hpp"
#include "core/error.hpp"
#include "core/parse.hpp"
#include "tokenizer/json_parts.hpp"
#include "tokenizer/token_list.hpp"

namespace forge {

using nlohmann::json;

namespace {

constexpr JsonLimits directory_limits{32, 1 << 24};
constexpr std::size_t most_directory_file_bytes = std::size_t{1} << 28;
// Of every tokenizer, in this order.
constexpr std::array named_tokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token"};

bool is_named(const std::string& key) {
  return std::find(named_tokens.begin(), named_tokens.end(), key) != named_tokens.end();
}

// A map; empty where the file isn't there.
json read_map(const std::string& path, std::string& all, bool& given) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return json::object();
  const std::string text = read_text_file(path, most_directory_file_bytes, "the tokenizer");
  all += text;
  given = true;
  return parse_json(text, path, directory_limits);
}

const json* member(const json& map, const std::string& key) {
  const auto at = map.find(key);
  return at == map.end() || at->is_null() ? nullptr : &*at;
}

std::string content_of(const json& value) {
  const json* text = value.is_object() ? member(value, "content") : &value;
  return text && text->is_string() ? text->get<std::string>() : std::string();
}

// A text, or a map with flags. A text is a special token; so is a map where `special` says it.
AddedToken token_of(const json& value, const std::string& place, bool special) {
  AddedToken token;
  token.text = content_of(value);
  token.special = special || value.is_string();
  if (!value.is_object()) return token;
  const JsonPart part{value, place};
  token.single_word = part.flag("single_word", false);
  token.left_strip = part.flag("lstrip", false);
  token.right_strip = part.flag("rstrip", false);
  token.special = special || part.flag("special", false);
  token.normalized = part.flag("normalized", !token.special);
  return token;
}

bool same(const AddedToken& a, const AddedToken& b) {
  return a.text == b.text && a.single_word == b.single_word && a.left_strip == b.left_strip &&
         a.right_strip == b.right_strip && a.normalized == b.normalized && a.special == b.special;
}

std::int64_t id_of_key(const std::string& key, const JsonPart& part) {
  std::int64_t id = -1;
  if (!reads_as(key, id) || id < 0 || id >= most_token_ids) part.refuse("legal: an id as the key");
  return id;
}

// What the files say, sorted out: tokens by ids, by names, and further special ones.
class Named {
 public:
  Named(const DirectoryConfig& directory, MainFile kind, const json& own)
      : directory_(directory), values_(json::object()) {
    values_ = directory.config;
    const json* decoder = member(directory.config, "added_tokens_decoder");
    if (const json* more = member(values_, "additional_special_tokens"); more && !has_extra())
      values_["extra_special_tokens"] = *more;
    values_.erase("additional_special_tokens");
    if (decoder && decoder->is_object())
      read_decoder(*decoder);
    else
      read_legacy(kind, own);
  }

  const std::map<std::int64_t, AddedToken>& by_id() const { return by_id_; }
  const json& values() const { return values_; }
  // Those with names, of which `defaults` are the class's.
  std::vector<AddedToken> with_names(const SpecialNames& defaults) const {
    std::vector<AddedToken> tokens;
    for (const char* key : named_tokens) {
      const json* value = member(values_, key);
      if (value) tokens.push_back(known(token_of(*value, place(key), true)));
      if (values_.contains(key)) continue;
      for (const auto& [name, text] : defaults)
        if (name == key) tokens.push_back(known(token_of(json(text), place(key), true)));
    }
    for (const std::string& key : directory_.keys)
      if (const json* value = member(values_, key);
          value && !is_named(key) && key.ends_with("_token") && value->is_string())
        tokens.push_back(token_of(*value, place(key), true));
    if (const json* extra = member(values_, "extra_special_tokens"); extra && extra->is_object())
      for (const auto& [key, value] : extra->items()) tokens.push_back(token_of(value, place(key), true));
    return tokens;
  }
  bool has_further() const { return values_.contains("extra_special_tokens"); }
  std::vector<AddedToken> further() const {
    std::vector<AddedToken> tokens;
    if (const json* extra = member(values_, "extra_special_tokens"); extra && extra->is_array())
      for (const json& value : *extra) tokens.push_back(token_of(value, place("extra_special_tokens"), true));
    return tokens;
  }

 private:
  std::string place(const std::string& key) const { return directory_.name + ": " + key; }
  bool has_extra() const {
    const json* extra = member(values_, "extra_special_tokens");
    return extra && !extra->empty();
  }
  // Flags of the token of the same text that an id names.
  AddedToken known(AddedToken token) const {
    const auto at = by_text_.find(token.text);
    return at == by_text_.end() ? token : at->second;
  }
  void set(std::int64_t id, AddedToken token) {
    by_text_[token.text] = token;
    by_id_[id] = std::move(token);
  }
  void read_decoder(const json& decoder) {
    for (const auto& [key, value] : decoder.items()) {
      const JsonPart part{value, place("added_tokens_decoder." + key)};
      part.text("content");
      set(id_of_key(key, part), token_of(value, part.place, false));
    }
  }
  void read_legacy(MainFile kind, const json& own) {
    for (const auto& [key, value] : directory_.special.items()) {
      if (key == "extra_special_tokens" && value.is_array() && has_extra() && values_[key].is_array()) {
        for (const json& token : value)
          if (std::find(values_[key].begin(), values_[key].end(), token) == values_[key].end())
            values_[key].push_back(token);
      } else if (key == "additional_special_tokens") {
        // Read only where nothing else names further tokens; a SentencePiece model does.
        if (!has_further() && kind != MainFile::sentencepiece) further_ = value;
      } else {
        values_[key] = value;
      }
    }
    std::map<std::string, bool> special;
    for (const char* key : named_tokens)
      if (const json* value = member(values_, key)) special[content_of(*value)] = true;
    if (const json* extra = member(values_, "extra_special_tokens"); extra && extra->is_array())
      for (const json& value : *extra) special[content_of(value)] = true;
    for (const auto& [text, id] : directory_.added.items()) {
      const JsonPart part{id, directory_.name + ": added_tokens.json: " + shown(text)};
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= most_token_ids)
        part.refuse("= " + shown_json(id) + "; legal: an id");
      AddedToken token;
      token.text = text;
      token.special = special.contains(text);
      token.normalized = !token.special;
      set(id.get<std::int64_t>(), token);
    }
    if (kind == MainFile::json && own.is_array())
      for (const json& value : own)
        if (const json* id = member(value, "id"); id && id->is_number_integer())
          set(id->get<std::int64_t>(), token_of(value, place("added_tokens"), false));
    if (!further_.is_null()) values_["extra_special_tokens"] = further_;
  }

  const DirectoryConfig& directory_;
  json values_, further_;
  std::map<std::int64_t, AddedToken> by_id_;
  std::map<std::string, AddedToken> by_text_;
};

bool makes_its_own_steps(const std::string& name) {
  return name == "GPT2Tokenizer" || name == "LlamaTokenizer";
}

// Special tokens that a class has where no file names others.
SpecialNames defaults_of(const DirectoryConfig& directory, bool rebuilt, const TokenizerParts& parts) {
  SpecialNames names = parts.own_specials;
  if (rebuilt) names.clear();
  if (rebuilt && directory.tokenizer_class == "GPT2Tokenizer")
    names = {{"unk_token", "<|endoftext|>"}, {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}};
  if (rebuilt && directory.tokenizer_class == "LlamaTokenizer")
    names = {{"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
  for (const auto& own : parts.own_specials)
    if (rebuilt && own.first == "pad_token") names.push_back(own);
  return names;
}

// Of a tiktoken file, whose added tokens have the ids that are named.
void add_stated(const DirectoryConfig& directory, const Named& named, TokenizerParts& parts) {
  for (const auto& [id, token] : named.by_id()) {
    if (id >= most_ids_of(parts.texts.size()))
      throw BadInput(directory.name + ": added_tokens_decoder." + std::to_string(id) + ": far behind the " +
                     std::to_string(parts.texts.size()) + " ids of the vocabulary");
    parts.added.push_back(token);
    parts.added.back().id = static_cast<std::int32_t>(id);
    parts.added.back().normalized = false;
    if (token.text.empty()) parts.added.pop_back();
  }
  install_added_tokens(parts);
}

bool has_byte_level(const json& part) {
  if (part.is_object()) {
    if (const json* type = member(part, "type"); type && *type == "ByteLevel") return true;
    for (const auto& [key, value] : part.items())
      if (has_byte_level(value)) return true;
  }
  if (part.is_array())
    for (const json& value : part)
      if (has_byte_level(value)) return true;
  return false;
}

}  // namespace

DirectoryConfig::DirectoryConfig(const std::string& directory) : name(directory + "/tokenizer_config.json") {
  config = read_map(name, text, given);
  special = read_map(directory + "/special_tokens_map.json", text, given);
  added = read_map(directory + "/added_tokens.json", text, given);
  const json* named = member(config, "tokenizer_class");
  if (named && named->is_string()) tokenizer_class = named->get<std::string>();
  if (tokenizer_class.ends_with("Fast")) tokenizer_class.resize(tokenizer_class.size() - 4);
  for (const json* map : {&config, &special})
    for (const auto& [key, value] : map->items()) keys.push_back(key);
}

bool DirectoryConfig::flag(const char* key, bool fallback) const {
  const json* value = member(config, key);
  return value && value->is_boolean() ? value->get<bool>() : fallback;
}

const char* DirectoryConfig::prefix_scheme() const {
  return !flag("add_prefix_space", true) ? "never" : flag("legacy", false) ? "always" : "first";
}

bool adapt_to_class(const DirectoryConfig& directory, json& root) {
  const json* model = member(root, "model");
  if (!makes_its_own_steps(directory.tokenizer_class) || !model || !model->is_object()) return false;
  // Another model than the class has is read by the file.
  const json* type = member(*model, "type");
  const bool bpe = type ? *type == "BPE" : model->contains("merges");
  const bool llama = directory.tokenizer_class == "LlamaTokenizer";
  if (!bpe || (llama && root.contains("pre_tokenizer") && has_byte_level(root["pre_tokenizer"]))) return false;
  root["normalizer"] = nullptr;
  root["added_tokens"] = json::array();
  json& own = root["model"];
  for (const char* key : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) own[key] = nullptr;
  own["ignore_merges"] = false;
  own["fuse_unk"] = own["byte_fallback"] = llama;
  if (llama)
    root["pre_tokenizer"] = {{"type", "Metaspace"},
                             {"replacement", "\xE2\x96\x81"},
                             {"prepend_scheme", directory.prefix_scheme()},
                             {"split", false}};
  else
    root["pre_tokenizer"] = {
        {"type", "ByteLevel"}, {"add_prefix_space", directory.flag("add_prefix_space", false)}, {"use_regex", true}};
  return true;
}

void add_directory_tokens(const DirectoryConfig& directory, MainFile kind, bool rebuilt, const json& own,
                          TokenizerParts& parts) {
  if (!directory.given) return;
  const Named named(directory, kind, own);
  if (const json* begin = member(named.values(), "bos_token")) parts.document_begin = content_of(*begin);
  if (const json* end = member(named.values(), "eos_token")) parts.document_end = content_of(*end);
  if (kind == MainFile::tiktoken) return add_stated(directory, named, parts);
  parts.splits_special = directory.flag("split_special_tokens", false);
  const std::vector<AddedToken> with_names = named.with_names(defaults_of(directory, rebuilt, parts));
  std::set<std::string> known, is_named_token;
  for (const AddedToken& token : parts.added) known.insert(token.text);
  for (const AddedToken& token : with_names) is_named_token.insert(token.text);
  TokenList list(parts);
  // First those that ids name and that are new or have other flags, in the order of the ids, then special ones that are
  // no added tokens yet.
  std::vector<AddedToken> fresh;
  for (const auto& [id, token] : named.by_id()) {
    const AddedToken* const before = list.find(token.text);
    if (before && same(*before, token)) continue;
    known.insert(token.text);
    fresh.push_back(token);
    if (kind == MainFile::sentencepiece && parts.prefixed_parts) fresh.back().normalized = false;
  }
  for (const auto& tokens : {with_names, named.has_further() ? named.further() : parts.own_further})
    for (const AddedToken& token : tokens)
      if (!token.text.empty() && !known.contains(token.text)) fresh.push_back(token);
  for (AddedToken& token : fresh) {
    token.special = token.special || is_named_token.contains(token.text);
    list.add(std::move(token));
  }
  if (kind == MainFile::json) parts.special.clear();
  install_added_tokens(parts);
}

}  // namespace forge
