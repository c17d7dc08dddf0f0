#include <chrono>
#include <cmath>
#include <memory>

#include "app/job.hpp"
#include "app/line_run.hpp"
#include "app/model_deck.hpp"
#include "app/score_lines.hpp"
#include "app/verbs.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/json.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

using ScoreFiles = LineFiles<ScoreLine, ScoreLines>;

std::string order_of(const std::vector<ScoredPiece>& pieces) {
  std::string order = LineOrders::work();
  for (const ScoredPiece& piece : pieces) append_record(order, piece.labels, piece.tokens);
  return order;
}

std::vector<ScoredPiece> pieces_of(const std::string& order) {
  std::vector<ScoredPiece> pieces;
  for (std::size_t at = 1; at < order.size();) {
    ScoredPiece& piece = pieces.emplace_back();
    piece.tokens = next_record(order, at, piece.labels);
  }
  return pieces;
}

// A loop of all ranks: the first one orders, all score, the first one writes.
template <class T>
class ScoreLoop {
 public:
  // `files`, `rows`: of the first rank, else null.
  ScoreLoop(Scorer<T>& scorer, const World& world, Communicator& ranks, ScoreFiles* files, LineRows* rows)
      : scorer_(scorer), rank_(world.rank()), orders_(world, ranks), files_(files), rows_(rows) {}

  void run() {
    if (!files_) return orders_.follow([&](const std::string& order) { score(pieces_of(order)); });
    orders_.lead(*files_, rows_->kept(), [&](std::int64_t first, std::int64_t) { score_lines(to_size(first)); });
  }
  std::int64_t lines() const { return lines_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t cut() const { return cut_; }

 private:
  std::vector<PieceScores> score(const std::vector<ScoredPiece>& pieces) {
    inject_fault(rank_, ++windows_);
    return scorer_.score(pieces);
  }

  // The lines at hand from one on, so many at a time as fill some microbatches.
  void score_lines(std::size_t begin) {
    constexpr std::int64_t microbatches = 16;
    const std::vector<ScoreLine>& lines = files_->lines;
    for (std::size_t end = begin; begin < lines.size(); begin = end) {
      std::vector<ScoredPiece> pieces;
      std::int64_t inputs = 0;
      for (; end < lines.size() && inputs < microbatches * scorer_.tokens_at_once(); ++end)
        for (const ScoredPiece& piece : lines[end].pieces) {
          inputs += piece.inputs();
          pieces.push_back(piece);
        }
      orders_.send(order_of(pieces));
      const std::vector<PieceScores> scores = score(pieces);
      std::string text;
      std::size_t at = 0;
      for (std::size_t i = begin; i < end; ++i) text += row_of(i, scores, at);
      rows_->write(text, static_cast<std::int64_t>(end - begin));
    }
  }

  // Of a line, whose pieces' scores begin at `at`, which goes behind them. Added in the order of the tokens.
  std::string row_of(std::size_t number, const std::vector<PieceScores>& scores, std::size_t& at) {
    const ScoreLine& line = files_->lines[number];
    double sum = 0;
    bool greedy = true;
    std::vector<double> each;
    for (std::size_t i = 0; i < line.pieces.size(); ++i, ++at) {
      greedy = greedy && scores[at].greedy;
      for (const double value : scores[at].log_likelihoods) {
        sum += value;
        each.push_back(value);
      }
    }
    if (!std::isfinite(sum))
      throw Error(files_->input.place(number) + ": the log-likelihood is " + (std::isnan(sum) ? "NaN" : "infinite") +
                      ", of parameters that are all finite; legal: a precision that holds the model's numbers "
                      "(--precision fp32 | fp64)",
                  ExitCode::not_finite);
    ++lines_;
    tokens_ += std::ssize(each);
    cut_ += line.left_out > 0;
    JsonLine row;
    row.add("log_likelihood", sum).add("tokens", std::ssize(each)).add("greedy", greedy);
    if (line.left_out > 0) row.add("left_out", line.left_out);
    if (files_->line.per_token) row.add("log_likelihoods", each);
    return row.text();
  }

  Scorer<T>& scorer_;
  int rank_;
  LineOrders orders_;
  ScoreFiles* files_;
  LineRows* rows_;
  std::int64_t lines_ = 0, tokens_ = 0, cut_ = 0, windows_ = 0;
};

template <class T>
void score(const Deck& deck, const World& world, const std::string& choice, ScoreFiles* files) {
  RunSetup setup = scoring_setup(deck, world.rank());
  prepare_device(setup, RunKind::evaluation, world);
  Job<T> job(setup, RunKind::evaluation, world);
  world.watchdog().start_other(0, "scores");
  std::unique_ptr<LineRows> rows;
  if (files) {
    rows = std::make_unique<LineRows>(files->line.output,
                                      files->call(deck, std::to_string(files->line.per_token), job.parameters));
    files->say(parameters_line(job.parameters) + choice);
    for (const std::string& note : job.notes) files->say(note);
    files->say_start(*rows);
  }
  const auto begin = std::chrono::steady_clock::now();
  Scorer<T> scorer(*job.session);
  ScoreLoop<T> loop(scorer, world, job.mesh.world(), files, rows.get());
  loop.run();
  scorer.finish();
  if (!files) return;
  rows->finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  files->say(counted(loop.lines(), "line") + ", " + counted(loop.tokens(), "token") + " scored in " +
             formatted("%.1f s", seconds));
  files->say_end(loop.cut(), "context", deck);
}

}  // namespace

void run_score(const CommandLine& line, const World& world) {
  Deck deck = load_deck(line, Needs::training, world);
  agree_on_start(deck, world);
  const std::string choice = choose_parameters(line, deck, *world.make_world());
  refuse_scales_of_sequences(line, deck);
  refuse_long_text(deck.model, deck.train.sequence_tokens);
  std::unique_ptr<ScoreFiles> files;
  if (world.rank() == 0) files = std::make_unique<ScoreFiles>(line, deck, line.inputs.at(1));
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { score<T>(deck, world, choice, files.get()); });
}

}  // namespace forge
