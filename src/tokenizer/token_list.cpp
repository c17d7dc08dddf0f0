#include "tokenizer/token_list.hpp"

#include <algorithm>
#include <unordered_set>

#include "config/text.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// A text may begin with a token at each of its places.
constexpr std::size_t most_token_bytes = 1 << 16;

}  // namespace

TokenList::TokenList(TokenizerParts& parts) : parts_(parts) {
  for (std::size_t i = 0; i < parts.added.size(); ++i) {
    place_.emplace(parts.added[i].text, i);
    largest_ = std::max(largest_, parts.added[i].id);
  }
}

const AddedToken* TokenList::find(const std::string& text) const {
  const auto at = place_.find(text);
  return at == place_.end() ? nullptr : &parts_.added[at->second];
}

void TokenList::add(AddedToken token) {
  if (token.text.empty()) return;
  if (token.text.size() > most_token_bytes)
    throw BadInput(parts_.name + ": an added token of " + std::to_string(token.text.size()) +
                   " bytes; legal: at most " + std::to_string(most_token_bytes));
  if (const auto at = place_.find(token.text); at != place_.end()) {
    token.id = parts_.added[at->second].id;
    parts_.added[at->second] = std::move(token);
    return;
  }
  if (const auto known = parts_.ids.find(token.text); known != parts_.ids.end())
    token.id = known->second;
  else
    token.id = static_cast<std::int32_t>(std::max<std::int64_t>(parts_.model_tokens, std::int64_t{largest_} + 1));
  largest_ = std::max(largest_, token.id);
  place_.emplace(token.text, parts_.added.size());
  parts_.added.push_back(std::move(token));
}

void install_added_tokens(TokenizerParts& parts) {
  std::vector<AddedToken> raw, normalized;
  std::unordered_set<std::string> special;
  RegexScratch scratch;
  const auto set_text = [&](std::int32_t id, const std::string& text) {
    if (to_size(id) >= parts.texts.size()) parts.texts.resize(to_size(id) + 1);
    parts.texts[to_size(id)] = text;
  };
  for (AddedToken token : parts.added) {
    if (token.special) special.insert(token.text);
    set_text(token.id, token.text);
    parts.ids[token.text] = token.id;
    if (token.special && parts.splits_special) continue;
    if (!token.normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    // What it stands for is what it is found as.
    const std::string written = token.text;
    normalize(parts.normalizers, token.text, scratch);
    if (token.text.empty())
      throw BadInput(parts.name + ": added_tokens: the normalizer leaves nothing of " + shown(written) +
                     "; legal: normalized = false, or a text that stays");
    set_text(token.id, token.text);
    normalized.push_back(std::move(token));
  }
  // As in the library, whose decoder asks for the text of an id.
  const std::vector<bool> before = std::move(parts.special);
  parts.special.clear();
  for (std::size_t id = 0; id < parts.texts.size(); ++id)
    parts.special.push_back((id < before.size() && before[id]) || special.contains(parts.texts[id]));
  parts.raw_tokens = AddedTokenFinder(std::move(raw));
  parts.normalized_tokens = AddedTokenFinder(std::move(normalized));
}

}  // namespace forge
