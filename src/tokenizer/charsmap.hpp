#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

// SentencePiece's precompiled_charsmap: a double array (Darts-clone) from byte strings to places in a text of
// replacements that end with a zero byte. Untrusted: every index is checked.
class Charsmap {
 public:
  Charsmap() = default;
  // `blob` is the bytes as the model has them; empty: no rules. BadInput names `where`.
  Charsmap(std::string_view blob, const std::string& where);

  bool empty() const { return units_.empty(); }
  struct Rule {
    std::size_t bytes = 0;  // of the text that it replaces; 0: there is none
    std::string_view replacement;
  };
  // The longest, or the shortest, key that `text` begins with.
  Rule longest(std::string_view text) const { return match(text, true); }
  Rule shortest(std::string_view text) const { return match(text, false); }
  // Whether some key begins with all of `text`, or `text` begins with some key: else no rule applies there.
  bool touches(std::string_view text) const;
  // Adds the bytes that stand behind `start` in a key.
  void add_followers(std::string_view start, std::bitset<256>& bytes) const;

 private:
  Rule match(std::string_view text, bool longest) const;
  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace forge
