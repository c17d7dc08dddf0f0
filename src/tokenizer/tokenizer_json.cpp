#include <algorithm>
#include <cmath>

#include "config/text.hpp"
#include "core/to_size.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/json_parts.hpp"
#include "tokenizer/readers.hpp"
#include "tokenizer/token_list.hpp"
#include "tokenizer/unigram.hpp"

namespace forge {

using nlohmann::json;

namespace {

struct Vocabulary {
  TokenTable table;  // texts as the file has them
  std::vector<std::string> texts;
};

void set_text(std::vector<std::string>& texts, std::int32_t id, const std::string& text) {
  if (to_size(id) >= texts.size()) texts.resize(to_size(id) + 1);
  texts[to_size(id)] = text;
}

Vocabulary read_vocabulary(const JsonPart& model) {
  const json* vocab = model.find("vocab");
  if (!vocab || !vocab->is_object()) model.refuse("vocab: legal is a map from texts to ids");
  Vocabulary read;
  const std::int64_t most = most_ids_of(vocab->size());
  for (const auto& [text, id] : vocab->items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= most)
      model.refuse("vocab: " + shown(text) + " = " + shown_json(id) + "; legal: integer, 0 to " +
                   std::to_string(most - 1));
    const auto number = static_cast<std::int32_t>(id.get<std::int64_t>());
    read.table.add(text, number);
    set_text(read.texts, number, text);
  }
  return read;
}

std::pair<std::string, std::string> read_merge(const JsonPart& model, const json& merge, std::size_t i) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  model.refuse("merges[" + std::to_string(i) + "] = " + shown_json(merge) +
               "; legal: \"left right\" or [\"left\", \"right\"]");
}

// A merge whose texts have characters of no byte can't meet a byte-level text.
std::vector<BpeMerge> read_merges(const JsonPart& model, const Vocabulary& vocabulary, const std::string& prefix,
                                  bool bytes) {
  const json* list = model.find("merges");
  if (!list || !list->is_array()) model.refuse("merges: legal is a list");
  std::vector<BpeMerge> merges;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const json& item = (*list)[i];
    if (item.is_string() && item.get_ref<const std::string&>().rfind("#version", 0) == 0) continue;
    const auto [left, right] = read_merge(model, item, i);
    const auto id_of = [&](const std::string& text) {
      const std::int32_t id = vocabulary.table.find(text);
      if (id < 0)
        model.refuse("merges[" + std::to_string(i) + "] needs the token " + shown(text) + ", which vocab lacks");
      return id;
    };
    if (right.size() < prefix.size()) model.refuse("merges[" + std::to_string(i) + "]: the right side has no prefix");
    const std::int32_t left_id = id_of(left), right_id = id_of(right);
    const std::string text = left + right.substr(prefix.size());
    const std::int32_t id = id_of(text);
    if (bytes && !from_byte_alphabet(text)) continue;
    merges.push_back({left_id, right_id, id, static_cast<std::uint32_t>(i)});
  }
  return merges;
}

std::array<std::int32_t, 256> byte_tokens_of(const TokenTable& table) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::array<std::int32_t, 256> ids;
  for (std::size_t byte = 0; byte < ids.size(); ++byte)
    ids[byte] = table.find(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
  return ids;
}

void read_bpe(const JsonPart& model, PreTokenizerSteps& steps, TokenizerParts& parts) {
  Vocabulary vocabulary = read_vocabulary(model);
  if (const json* dropout = model.find("dropout"); dropout && !(dropout->is_number() && dropout->get<double>() == 0))
    model.refuse("dropout = " + shown_json(*dropout) + "; legal: null, for ids must not depend on chance");
  BpeOptions options;
  options.prefix = model.text("continuing_subword_prefix", "");
  options.suffix = model.text("end_of_word_suffix", "");
  options.byte_fallback = model.flag("byte_fallback", false);
  options.fuse_unknown = model.flag("fuse_unk", false);
  options.ignore_merges = model.flag("ignore_merges", false);
  if (model.find("unk_token")) {
    const std::string unknown = model.text("unk_token");
    options.unknown = vocabulary.table.find(unknown);
    if (options.unknown < 0)
      options.lacking = model.place + ": unk_token = " + shown(unknown) +
                        " is not in vocab, as it must be where a text " + "has a character that vocab lacks: ";
  }
  options.bytes = steps.ends_in_bytes && !options.byte_fallback && options.prefix.empty() && options.suffix.empty();
  if (steps.ends_in_bytes && !options.bytes) steps.steps.push_back(make_byte_alphabet());
  const std::vector<BpeMerge> merges = read_merges(model, vocabulary, options.prefix, options.bytes);
  const auto byte_tokens = byte_tokens_of(vocabulary.table);
  parts.texts = std::move(vocabulary.texts);
  TokenTable table;
  if (options.bytes) {
    for (const auto& [text, id] : vocabulary.table)
      if (auto raw = from_byte_alphabet(text)) table.add(std::move(*raw), id);
  } else {
    table = std::move(vocabulary.table);
  }
  parts.model = std::make_unique<Bpe>(std::move(table), merges, byte_tokens, options);
}

void read_unigram(const JsonPart& model, PreTokenizerSteps& steps, TokenizerParts& parts) {
  if (steps.ends_in_bytes) steps.steps.push_back(make_byte_alphabet());
  const json* vocab = model.find("vocab");
  if (!vocab || !vocab->is_array() || vocab->empty()) model.refuse("vocab: legal is a list of [text, score]");
  std::vector<UnigramPiece> pieces;
  UnigramOptions options;
  options.least_score = INFINITY;
  TokenTable table;
  for (std::size_t i = 0; i < vocab->size(); ++i) {
    const json& item = (*vocab)[i];
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number())
      model.refuse("vocab[" + std::to_string(i) + "] = " + shown_json(item) + "; legal: [text, score]");
    pieces.push_back({item[0].get<std::string>(), item[1].get<double>()});
    options.least_score = std::min(options.least_score, pieces.back().score);
    set_text(parts.texts, static_cast<std::int32_t>(i), pieces.back().text);
  }
  for (std::size_t i = pieces.size(); i-- > 0;) table.add(pieces[i].text, static_cast<std::int32_t>(i));
  if (model.find("unk_id"))
    options.unknown =
        static_cast<std::int32_t>(model.integer("unk_id", 0, static_cast<std::int64_t>(pieces.size()) - 1));
  options.byte_fallback = model.flag("byte_fallback", false);
  options.byte_tokens = byte_tokens_of(table);
  parts.model = std::make_unique<Unigram>(std::move(pieces), options);
}

void read_added_tokens(const JsonPart& root, TokenizerParts& parts) {
  if (!root.find("added_tokens")) return;
  TokenList list(parts);
  for (const JsonPart& part : root.list("added_tokens")) {
    AddedToken token;
    token.text = part.text("content");
    part.integer("id", 0, most_token_ids - 1);
    token.single_word = part.flag("single_word", false);
    token.left_strip = part.flag("lstrip", false);
    token.right_strip = part.flag("rstrip", false);
    token.special = part.flag("special", false);
    token.normalized = part.flag("normalized", !token.special);
    list.add(std::move(token));
  }
}

}  // namespace

TokenizerParts read_tokenizer_json(const std::string& text, const std::string& name) {
  return read_tokenizer_json(parse_json(text, name, tokenizer_json_limits), name);
}

TokenizerParts read_tokenizer_json(const json& root_value, const std::string& name) {
  const JsonPart root{root_value, name + ":"};
  TokenizerParts parts;
  parts.name = name;
  const auto part_of = [&](const char* key) {
    static const json nothing;
    const json* found = root.find(key);
    return JsonPart{found ? *found : nothing, name + ": " + key};
  };
  read_normalizers(part_of("normalizer"), parts.normalizers);
  PreTokenizerSteps steps;
  read_pre_tokenizers(part_of("pre_tokenizer"), steps);
  const JsonPart model = part_of("model");
  if (model.value.is_null()) root.refuse("model is missing");
  const std::string type = model.text("type", model.find("merges") ? "BPE" : "Unigram");
  if (type == "BPE")
    read_bpe(model, steps, parts);
  else if (type == "Unigram")
    read_unigram(model, steps, parts);
  else
    model.refuse("type = " + shown(type) + "; legal: BPE | Unigram");
  parts.pre_tokenizers = std::move(steps.steps);
  parts.spaced = part_of("decoder").value.is_null();
  read_decoders(part_of("decoder"), parts.decoders);
  // Of a text that a unigram vocabulary has twice the last id holds.
  for (std::size_t id = parts.texts.size(); id-- > 0;) {
    if (parts.texts[id].empty()) continue;
    ++parts.model_tokens;
    parts.ids.emplace(parts.texts[id], static_cast<std::int32_t>(id));
  }
  if (const JsonPart padding = part_of("padding"); padding.value.is_object() && padding.find("pad_token"))
    parts.own_specials.emplace_back("pad_token", padding.text("pad_token"));
  read_added_tokens(root, parts);
  install_added_tokens(parts);
  return parts;
}

}  // namespace forge
