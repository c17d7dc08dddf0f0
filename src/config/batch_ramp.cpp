#include "config/batch_ramp.hpp"

#include <algorithm>
#include <limits>

#include "config/check_parts.hpp"
#include "config/map_list.hpp"

namespace forge {

namespace {

constexpr std::int64_t most_step = std::int64_t{1} << 60, most_batch = std::int64_t{1} << 30;

// The first step of an entry behind those that `so_far` has.
std::int64_t first_step_of(const RampDeck& entry, const BatchSizes& so_far, const TrainDeck& train) {
  return entry.from_step > 0 ? entry.from_step : so_far.first_step_behind(entry.from_tokens, train.sequence_tokens);
}

}  // namespace

BatchSizes::BatchSizes(const TrainDeck& train) : BatchSizes(train.global_batch_sequences) {
  for (const RampDeck& entry : train.batch_ramp)
    change(first_step_of(entry, *this, train), entry.global_batch_sequences);
}

bool BatchSizes::change(std::int64_t first_step, std::int64_t sequences) {
  if (first_step < 1 || (first_step <= pieces_.back().first_step && pieces_.size() > 1)) return false;
  const std::int64_t place = before(first_step);
  if (first_step == 1) pieces_.clear();
  pieces_.push_back({first_step, place, sequences});
  return true;
}

const BatchSizes::Piece& BatchSizes::piece_of(std::int64_t step) const {
  const auto next = std::upper_bound(pieces_.begin(), pieces_.end(), step,
                                     [](std::int64_t at, const Piece& piece) { return at < piece.first_step; });
  return next == pieces_.begin() ? pieces_.front() : *std::prev(next);
}

// A step that no run reaches has as many places as a number can count.
std::int64_t BatchSizes::before(std::int64_t step) const {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Piece& piece = piece_of(step);
  const std::int64_t steps = step - piece.first_step, sequences = std::max<std::int64_t>(piece.sequences, 1);
  if (steps > (most - piece.first_place) / sequences) return most;
  return piece.first_place + steps * piece.sequences;
}

std::int64_t BatchSizes::first_step_behind(std::int64_t tokens, std::int64_t sequence_tokens) const {
  const std::int64_t T = std::max<std::int64_t>(sequence_tokens, 1);
  const std::int64_t places = tokens / T + (tokens % T != 0);
  const auto next =
      std::find_if(pieces_.begin() + 1, pieces_.end(), [&](const Piece& piece) { return piece.first_place >= places; });
  const Piece& piece = *std::prev(next);
  const std::int64_t left = std::max<std::int64_t>(places - piece.first_place, 0),
                     sequences = std::max<std::int64_t>(piece.sequences, 1);
  return piece.first_step + left / sequences + (left % sequences != 0);
}

std::int64_t BatchSizes::largest() const {
  std::int64_t most = 0;
  for (const Piece& piece : pieces_) most = std::max(most, piece.sequences);
  return most;
}

bool BatchSizes::same_through(std::int64_t last, const BatchSizes& other) const {
  const auto agree = [&](const std::vector<Piece>& pieces) {
    return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return piece.first_step > last || of(piece.first_step) == other.of(piece.first_step);
    });
  };
  return agree(pieces_) && agree(other.pieces_);
}

std::string BatchSizes::text() const {
  std::string text;
  for (const Piece& piece : pieces_)
    text +=
        (text.empty() ? "" : ", ") + std::to_string(piece.sequences) + " from step " + std::to_string(piece.first_step);
  return pieces_.size() > 1 ? text : "";
}

std::vector<std::int64_t> BatchSizes::turns() const {
  std::vector<std::int64_t> steps;
  for (const Piece& piece : pieces_) steps.push_back(piece.first_step);
  return steps;
}

std::string legal_list(const std::vector<RampDeck>&) {
  return "list of {from_step or from_tokens, global_batch_sequences}";
}

std::string read_list(const YamlNode& node, std::vector<RampDeck>& ramp) {
  return read_map_list(node, ramp, [](RampDeck& r) {
    return std::vector<Member>{{"from_step", integer_reader(r.from_step, 1, most_step)},
                               {"from_tokens", integer_reader(r.from_tokens, 1, most_step)},
                               {"global_batch_sequences", integer_reader(r.global_batch_sequences, 1, most_batch)}};
  });
}

std::string list_text(const std::vector<RampDeck>& ramp) {
  return map_list_text(ramp, [](const RampDeck& r) {
    return beginning_text(r) + ", global_batch_sequences: " + std::to_string(r.global_batch_sequences);
  });
}

std::string list_problem(const std::vector<RampDeck>& ramp) {
  for (std::size_t i = 0; i < ramp.size(); ++i) {
    const RampDeck& entry = ramp[i];
    const std::string where = "[" + std::to_string(i) + "]";
    if (std::string problem = beginning_problem(entry, where); !problem.empty()) return problem;
    if (entry.global_batch_sequences == 0)
      return where + " has no global_batch_sequences; legal: integer, 1 to train.global_batch_sequences";
  }
  return "";
}

std::string ramp_key(std::size_t entry) {
  return "train.batch_ramp[" + std::to_string(entry) + "].global_batch_sequences";
}

void check_ramp(const TrainDeck& train, Report& report) {
  BatchSizes so_far(train.global_batch_sequences);
  std::int64_t before = 0;
  for (std::size_t i = 0; i < train.batch_ramp.size(); ++i) {
    const RampDeck& entry = train.batch_ramp[i];
    if (entry.global_batch_sequences > train.global_batch_sequences)
      report.add(equation(ramp_key(i).c_str(), entry.global_batch_sequences) + "; legal: at most " +
                 equation("train.global_batch_sequences", train.global_batch_sequences));
    const std::int64_t first = first_step_of(entry, so_far, train);
    check_order("train.batch_ramp[" + std::to_string(i) + "]", first, before, report);
    so_far.change(first, entry.global_batch_sequences);
  }
}

}  // namespace forge
