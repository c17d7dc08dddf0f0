#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace forge {

// Texts of tokens and their ids, both ways.
class TokenTable {
 public:
  static constexpr std::int32_t none = -1;

  // False, and nothing changed, where the text is there.
  bool add(std::string text, std::int32_t id) {
    if (ids_.contains(text)) return false;
    texts_.push_back(std::move(text));
    ids_.emplace(texts_.back(), id);
    return true;
  }
  std::int32_t find(std::string_view text) const {
    const auto at = ids_.find(text);
    return at == ids_.end() ? none : at->second;
  }
  std::size_t size() const { return ids_.size(); }
  auto begin() const { return ids_.begin(); }
  auto end() const { return ids_.end(); }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

}  // namespace forge
