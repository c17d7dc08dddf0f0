#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.hpp"

namespace forge {

// What becomes of a match: of "the-final--count" at "-": Removed the|final|count, Isolated the|-|final|-|-|count,
// MergedWithPrevious the-|final-|-|count, MergedWithNext the|-final|-|-count, Contiguous the|-|final|--|count.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// A piece of a text.
struct TextPiece {
  std::string_view text;
  bool first;  // the text begins with it
};

// A step that cuts a text into the pieces that are tokenized apart. Const, and shared by threads.
class PreTokenizer {
 public:
  struct Scratch {
    std::string text;                 // what a step has made of a piece
    std::vector<Regex::Match> parts;  // of it
  };
  using Emit = std::function<void(TextPiece)>;

  virtual ~PreTokenizer() = default;
  // Calls `emit` for each piece that isn't empty, in order.
  virtual void split(TextPiece piece, Scratch& scratch, RegexScratch& regex, const Emit& emit) const = 0;
  // The pattern, where all that this step does is to isolate its matches, and none depends on what stands before it.
  virtual const Regex* cutting_pattern() const { return nullptr; }
  // Whether the text becomes one piece, which is all that the model sees.
  virtual bool keeps_whole() const { return false; }
  // A place behind `from` where the text can be cut without a change of its pieces; its size where nothing says so.
  virtual std::size_t cut_behind(std::string_view text, std::size_t /*from*/) const { return text.size(); }
};

enum class CharacterKind { numeric, punctuation, bert_punctuation, white_space };
enum class PrependScheme { first, never, always };

std::unique_ptr<PreTokenizer> make_split(Regex pattern, SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer> make_split_text(const std::string& text, SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer> make_split_characters(CharacterKind kind, SplitBehavior behavior);
std::unique_ptr<PreTokenizer> make_metaspace(const std::string& replacement, PrependScheme scheme, bool split);
// The piece with a space before it, where it has none.
std::unique_ptr<PreTokenizer> make_prefix_space();
// Each byte as its character of the byte alphabet.
std::unique_ptr<PreTokenizer> make_byte_alphabet();

}  // namespace forge
