#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/token_choice.hpp"
#include "data/batch_rows.hpp"
#include "train/session.hpp"

namespace forge {

// The setup of a run that generates train.microbatch_sequences texts at a time on each data-parallel rank, each of at
// most train.sequence_tokens tokens, with `piece` tokens of each in a pass, or some more where tensor-parallel ranks
// share rows. The deck's keys of data have no part in that, and no expert's capacity acts.
RunSetup generation_setup(Deck deck, int rank, std::int64_t piece);

// A part of a text for one pass.
struct TextPart {
  std::int64_t text = 0;              // 0 … Generator::texts() − 1
  std::int64_t first = 0;             // position of the first of the tokens; all before it were given earlier
  std::vector<std::int32_t> tokens;   // 1 … Generator::piece()
  std::optional<TokenChoice> choice;  // for the token behind them; none: the text goes on
};

// Texts on any layout: each pass gives the model some tokens of each and chooses the next ones. A text is one
// data-parallel rank's, whose tensor-parallel ranks and stages share its keys and values.
template <class T>
class Generator {
 public:
  explicit Generator(Session<T>& session);
  // Texts of all data-parallel ranks, at a time.
  std::int64_t texts() const { return slots_ * session_.setup().replicas(); }
  std::int64_t piece() const { return piece_; }
  // All ranks give the same parts, of different texts. By text on rank 0 of the world: the chosen token; −1: a logit
  // isn't finite (choose_token), or none was to be chosen. Elsewhere empty.
  std::vector<std::int32_t> pass(const std::vector<TextPart>& parts);
  // To be called behind the last pass.
  void finish() { session_.evaluated_loss(); }

 private:
  void fill(const std::vector<TextPart>& parts);
  void choose(const std::vector<TextPart>& parts);
  // A text's place on its data-parallel rank, if that is this rank's; texts take turns.
  std::optional<std::int64_t> own_slot(std::int64_t text) const;

  Session<T>& session_;
  std::int64_t slots_, piece_;
  HostBatch batch_;
  PinnedVector<std::int32_t> places_, rows_, chosen_;  // of GenerationBuffers
};

}  // namespace forge
