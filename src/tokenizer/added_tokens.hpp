#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_trie.hpp"

namespace forge {

// A token that is found in the text itself, before anything else is done.
struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  bool single_word = false;                      // only where no word character stands beside it
  bool left_strip = false, right_strip = false;  // takes the white space beside it
  bool normalized = false;                       // is looked for in the normalised text
  bool special = false;
};

// Finds them: from left to right, of those that begin at one place the longest.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  struct Part {
    std::size_t begin, end;
    std::int32_t id;  // -1: text between tokens
  };
  // The text in parts, without empty ones between tokens.
  void split(std::string_view text, std::vector<Part>& parts) const;

 private:
  // The first token in the text from `at` on; its end in `end`. -1: none.
  std::int32_t find(std::string_view text, std::size_t& at, std::size_t& end) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;
  bool first_[256] = {};
};

}  // namespace forge
