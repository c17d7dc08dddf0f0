#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/batch_rows.hpp"
#include "device/pinned.hpp"
#include "kernels/rows/row_scores.hpp"
#include "train/session.hpp"

namespace forge {

// Tokens whose last `labels` are scored, each by the tokens before it. The first token is never scored.
struct ScoredPiece {
  std::vector<std::int32_t> tokens;
  std::int64_t labels = 0;

  std::int64_t inputs() const { return static_cast<std::int64_t>(tokens.size()) - 1; }
};

// Scores of a piece's labels: the natural logarithm of each one's probability, in order, and whether every one of them
// is the likeliest token; of equal logits the smallest id is.
struct PieceScores {
  std::vector<double> log_likelihoods;
  bool greedy = true;
};

// The pieces that stand in one sequence of T inputs, each a document.
using ScoredSequence = std::vector<std::size_t>;
// Pieces of at most T inputs, the longest first. `alone`: each in a sequence of its own.
std::vector<ScoredSequence> scored_sequences(const std::vector<ScoredPiece>& pieces, std::int64_t T, bool alone);
// Writes such a sequence.
void write_sequence(const std::vector<ScoredPiece>& pieces, const ScoredSequence& sequence, Sample& sample);

// The setup of a run that scores: sequences hold several pieces, as documents whose positions start anew, and the
// deck's keys of its own data have no part in that.
RunSetup scoring_setup(Deck deck, int rank);

// Scores pieces with the ranks' model; all ranks call all of it together. The setup is scoring_setup's.
template <class T>
class Scorer {
 public:
  explicit Scorer(Session<T>& session);
  // Scores of each piece, on rank 0 of the world; empty elsewhere. All ranks give the same pieces, of at most
  // train.sequence_tokens inputs.
  std::vector<PieceScores> score(const std::vector<ScoredPiece>& pieces);
  // Inputs of a microbatch of all data-parallel ranks.
  std::int64_t tokens_at_once() const { return at_once_ * sequence_tokens_; }
  // Pieces have sequences of their own.
  bool alone() const { return alone_; }
  // To be called behind the last scores.
  void finish() { session_.evaluated_loss(); }

 private:
  // A microbatch, and where its scores are left.
  struct Slot {
    HostBatch batch;
    RowScores scores;  // of the session's, (R); empty without the head
    PinnedVector<double> host_log_likelihood;
    PinnedVector<std::int32_t> host_beaten;
    Event read;
    std::int64_t first = -1;  // sequence of all ranks'; −1: nothing stands here
  };
  // A rank's scores of a row.
  struct RowScore {
    std::int64_t place;  // sequence · T + position
    double log_likelihood;
    std::int64_t beaten;
  };
  void start(Slot& slot, std::int64_t first, const std::vector<ScoredPiece>& pieces,
             const std::vector<ScoredSequence>& sequences);
  void finish(Slot& slot, std::vector<RowScore>& rows);
  std::vector<PieceScores> gather(const std::vector<RowScore>& rows, const std::vector<ScoredPiece>& pieces,
                                  const std::vector<ScoredSequence>& sequences);

  Session<T>& session_;
  std::int64_t sequence_tokens_, at_once_;  // sequences of all data-parallel ranks
  bool alone_;
  BatchFiller filler_;
  Sample sample_;
  std::array<Slot, 2> slots_;
};

}  // namespace forge
