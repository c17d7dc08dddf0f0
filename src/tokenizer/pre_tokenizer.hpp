#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/regex.hpp"

namespace forge {

// The treatment of a match: of "the-final--count" at "-": Removed the|final|count, Isolated the|-|final|-|-|count,
// MergedWithPrevious the-|final-|-|count, MergedWithNext the|-final|-|-count, Contiguous the|-|final|--|count.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// A piece of a text.
struct TextPiece {
  std::string_view text;
  bool first;  // the text begins with it
};

// A step that cuts a text into the pieces that are tokenized apart. Shared by threads.
struct PreTokenizer {
  using Emit = std::function<void(TextPiece)>;

  // Calls `emit` for each piece that isn't empty, in order. `made`: memory for a changed text of the piece.
  std::function<void(TextPiece piece, std::string& made, RegexScratch& regex, const Emit& emit)> split;
  // The pattern, where all that this step does is to isolate its matches, and none depends on the text before it.
  std::optional<Regex> cutting_pattern = {};
  // Whether the text becomes one piece, which is all that the model sees.
  bool keeps_whole = false;
  // A place behind `from` where the text can be cut without a change of its pieces; its size where nothing says so.
  std::function<std::size_t(std::string_view text, std::size_t from)> cut_behind =
      [](std::string_view text, std::size_t) { return text.size(); };
};

enum class CharacterKind { numeric, punctuation, white_space };
enum class PrependScheme { first, never, always };

PreTokenizer make_split(const Regex& pattern, SplitBehavior behavior, bool invert);
PreTokenizer make_split(const std::string& text, SplitBehavior behavior, bool invert);
PreTokenizer make_split_characters(CharacterKind kind, SplitBehavior behavior);
PreTokenizer make_metaspace(const std::string& replacement, PrependScheme scheme, bool split);
// The piece with a space before it, where it has none.
PreTokenizer make_prefix_space();
// Each byte as its character of the byte alphabet.
PreTokenizer make_byte_alphabet();

}  // namespace forge
