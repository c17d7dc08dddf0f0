#include "tokenizer/added_tokens.hpp"

#include <algorithm>
#include <set>

#include "core/to_size.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

std::size_t character_before(std::string_view text, std::size_t at) {
  --at;
  while (at > 0 && continues_character(text[at])) --at;
  return at;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool left = begin > 0 && is_word_character(decode_valid(text, character_before(text, begin)).code);
  const bool right = end < text.size() && is_word_character(decode_valid(text, end).code);
  return !left && !right;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, std::int32_t>> texts;
  // Of two that the normalizer gives one text the first holds; the library takes either, by chance.
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (seen.insert(token.text).second) texts.emplace_back(token.text, static_cast<std::int32_t>(i));
    if (!token.text.empty()) first_[static_cast<std::uint8_t>(token.text[0])] = true;
  }
  trie_ = ByteTrie(std::move(texts));
}

std::int32_t AddedTokenFinder::find(std::string_view text, std::size_t& at, std::size_t& end) const {
  for (; at < text.size(); ++at) {
    if (!first_[static_cast<std::uint8_t>(text[at])]) continue;
    std::int32_t node = 0, found = -1;
    for (std::size_t i = at; i < text.size(); ++i) {
      node = trie_.step(node, static_cast<std::uint8_t>(text[i]));
      if (node == ByteTrie::none) break;
      if (trie_.value(node) != ByteTrie::none) found = trie_.value(node), end = i + 1;
    }
    if (found >= 0) return found;
  }
  return -1;
}

void AddedTokenFinder::split(std::string_view text, std::vector<Part>& parts) const {
  parts.clear();
  if (text.empty()) return;
  std::size_t done = 0, from = 0, end = 0;
  std::size_t run_begin = 0, run_end = 0;  // the last run of white space that a token took on its right
  while (!tokens_.empty()) {
    const std::int32_t index = find(text, from, end);
    if (index < 0) break;
    const AddedToken& token = tokens_[to_size(index)];
    std::size_t begin = from;
    from = end;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.left_strip) {
      // What the token before has taken stays its own.
      while (begin > done) {
        const std::size_t before = character_before(text, begin);
        if (!is_white_space(decode_valid(text, before).code)) break;
        begin = before;
      }
      begin = std::max(begin, done);
    }
    if (token.right_strip) {
      const std::size_t begins = end;
      if (end >= run_begin && end < run_end) end = run_end;
      while (end < text.size()) {
        const Decoded c = decode_valid(text, end);
        if (!is_white_space(c.code)) break;
        end += c.bytes;
      }
      run_begin = begins;
      run_end = end;
    }
    // White space that the token before has taken.
    if (begin >= end) continue;
    if (done < begin) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), -1});
}

}  // namespace forge
