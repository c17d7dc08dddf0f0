#pragma once

#include <string>
#include <string_view>

#include "app/command_line.hpp"
#include "app/model_text.hpp"
#include "train/scoring.hpp"

namespace forge {

// A line of JSON to score, as pieces that a model of T inputs takes: one, or of a line without a context as many as
// its continuation needs.
struct ScoreLine {
  std::vector<ScoredPiece> pieces;
  std::int64_t left_out = 0;  // tokens of the context, from its left, which T inputs have no room for
};

// Reads lines {"context": …, "continuation": …}, each a text or a list of ids, as lm-eval does: two texts have the ids
// of the whole text, and spaces at the end of the context belong to the continuation; an empty context is
// the model's document begin, else its document end, but where the continuation begins with it; without a context the
// continuation is a text of its own, behind that token, in windows of T labels, each behind as many tokens as there is
// room for.
class ScoreLines {
 public:
  ScoreLines(const CommandLine&, const ModelText& text, const Deck& deck)
      : text_(text), vocabulary_(deck.model.vocabulary), T_(deck.train.sequence_tokens) {}
  // BadInput, which begins with `place`: no such line, an empty continuation, an id outside of the vocabulary, or a
  // continuation behind a context that is longer than T.
  ScoreLine read(std::string_view line, const std::string& place) const;

 private:
  using Ids = std::vector<std::int32_t>;
  struct Fields;
  std::int32_t before_text(const std::string& place) const;
  ScoreLine with_context(Ids context, Ids continuation, const std::string& place) const;
  ScoreLine in_windows(const Ids& continuation, const std::string& place) const;

  const ModelText& text_;
  std::int64_t vocabulary_, T_;
};

}  // namespace forge
