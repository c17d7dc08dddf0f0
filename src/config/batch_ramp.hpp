#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"

namespace forge {

class Report;
struct YamlNode;

// How many sequences each step of a run reads, from step 1 on: a pure function of the step, so that a run can go on
// anywhere. With batches G_1, G_2, …, step s reads the places before(s) … before(s) + G_s − 1 of the run's order, where
//   before(s) = G_1 + … + G_{s−1}.
class BatchSizes {
 public:
  BatchSizes(std::int64_t sequences = 1) : pieces_{{1, 0, sequences}} {}  // the same in every step
  // train.global_batch_sequences, then from each step of train.batch_ramp on that entry's number. Of a ramp that isn't
  // legal, entries that don't begin later than the one before are left out.
  explicit BatchSizes(const TrainDeck& train);

  std::int64_t of(std::int64_t step) const { return piece_of(step).sequences; }
  // Places that the steps before this one read.
  std::int64_t before(std::int64_t step) const;
  // The first step behind so many tokens of training, in samples of T tokens; from 1.
  std::int64_t first_step_behind(std::int64_t tokens, std::int64_t sequence_tokens) const;
  // The largest batch of any step.
  std::int64_t largest() const;
  // Whether all steps as far as `last` have the same batches as another run's.
  bool same_through(std::int64_t last, const BatchSizes& other) const;
  // "8 from step 1, 16 from step 101"; "" where all steps have the same.
  std::string text() const;
  // First steps of the batches.
  std::vector<std::int64_t> turns() const;

  // Another batch from a step on; false where that isn't later than the changes so far.
  bool change(std::int64_t first_step, std::int64_t sequences);

 private:
  struct Piece {
    std::int64_t first_step, first_place, sequences;
  };
  const Piece& piece_of(std::int64_t step) const;

  std::vector<Piece> pieces_;  // by their steps; the first has step 1
};

// The value of train.batch_ramp, a list of maps; as config/mixture_keys.hpp has them of other lists.
std::string legal_list(const std::vector<RampDeck>& ramp);
std::string read_list(const YamlNode& node, std::vector<RampDeck>& ramp);
std::string list_text(const std::vector<RampDeck>& ramp);
std::string list_problem(const std::vector<RampDeck>& ramp);
// The rules between the list and the rest of train.
void check_ramp(const TrainDeck& train, Report& report);
// "train.batch_ramp[1].global_batch_sequences"
std::string ramp_key(std::size_t entry);

}  // namespace forge
