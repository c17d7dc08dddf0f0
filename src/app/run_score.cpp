#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "app/common_facts.hpp"
#include "app/job.hpp"
#include "app/line_input.hpp"
#include "app/line_rows.hpp"
#include "app/outputs.hpp"
#include "app/score_lines.hpp"
#include "app/trained_model.hpp"
#include "app/verbs.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/json.hpp"
#include "core/random.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// What the first rank alone has: the lines, and where their rows go.
struct ScoreFiles {
  const CommandLine& line;
  ModelText text;
  ScoreLines reader;
  LineInput input;
  std::vector<ScoreLine> lines;  // those at hand
  std::list<OutputLock> locks;

  ScoreFiles(const CommandLine& options, const Deck& deck)
      : line(options), text(deck, options.tokenizer, options.pattern), reader(text, deck), input(options.inputs.at(1)) {
    read_lines();
    check_outputs(options, deck);
    locks = lock_outputs(options);
  }
  // All of them, before any is scored.
  void read_lines() {
    lines.clear();
    for (std::size_t i = 0; i < input.lines().size(); ++i)
      lines.push_back(reader.read(input.lines()[i], input.place(i)));
  }
  // What must be the same for rows of an earlier run to stay.
  std::string call(const Deck& deck, const std::string& parameters) const {
    const std::string tokenizer = text.tokenizer() ? std::to_string(text.tokenizer()->digest()) : "bytes";
    return std::to_string(hash_of(std::to_string(input.hash()) + "\n" + std::to_string(line.per_token) + "\n" +
                                  tokenizer + "\n" + parameters + "\n" + model_fingerprint(deck)));
  }
  // Beside rows on standard output nothing else stands there.
  void say(const std::string& text_line) const {
    std::fprintf(line.output == "-" ? stderr : stdout, "%s\n", text_line.c_str());
  }
};

// What the first rank tells the others: pieces to score; or to wait for more; or that there are none any more.
enum class Order : char { score, wait, end };

std::string text_of(const std::vector<ScoredPiece>& pieces) {
  std::string text(1, static_cast<char>(Order::score));
  const auto append = [&](const void* data, std::size_t bytes) { text.append(static_cast<const char*>(data), bytes); };
  for (const ScoredPiece& piece : pieces) {
    const std::int64_t sizes[] = {std::ssize(piece.tokens), piece.labels};
    append(sizes, sizeof sizes);
    append(piece.tokens.data(), piece.tokens.size() * sizeof(std::int32_t));
  }
  return text;
}

std::vector<ScoredPiece> pieces_of(const std::string& text) {
  std::vector<ScoredPiece> pieces;
  for (std::size_t at = 1; at < text.size();) {
    std::int64_t sizes[2];
    std::memcpy(sizes, text.data() + at, sizeof sizes);
    at += sizeof sizes;
    ScoredPiece& piece = pieces.emplace_back(ScoredPiece{std::vector<std::int32_t>(to_size(sizes[0])), sizes[1]});
    const std::size_t bytes = piece.tokens.size() * sizeof(std::int32_t);
    std::memcpy(piece.tokens.data(), text.data() + at, bytes);
    at += bytes;
  }
  return pieces;
}

// A loop of all ranks: the first one orders, all score, the first one writes.
template <class T>
class ScoreLoop {
 public:
  // `files`, `rows`: of the first rank, else null.
  ScoreLoop(Scorer<T>& scorer, const World& world, Communicator& ranks, ScoreFiles* files, LineRows* rows)
      : scorer_(scorer), world_(world), ranks_(ranks), files_(files), rows_(rows) {}

  void run() {
    if (!files_) {
      while (follow(told(""))) {
      }
    } else if (!files_->input.is_stream()) {
      score_lines(to_size(rows_->kept()));
      told(std::string(1, static_cast<char>(Order::end)));
    } else {
      serve();
    }
  }
  std::int64_t lines() const { return lines_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t cut() const { return cut_; }

 private:
  std::string told(std::string order) {
    ranks_.broadcast_host(order, 0);
    world_.watchdog().heartbeat().beat();
    return order;
  }
  // Whether more may come.
  bool follow(const std::string& order) {
    const auto what = static_cast<Order>(order.at(0));
    if (what == Order::score) score(pieces_of(order));
    return what != Order::end;
  }
  std::vector<PieceScores> score(const std::vector<ScoredPiece>& pieces) {
    inject_fault(world_.rank(), ++windows_);
    return scorer_.score(pieces);
  }

  void serve() {
    for (;;) {
      const LineInput::Next next = files_->input.next();
      if (next == LineInput::Next::batch) {
        files_->read_lines();
        score_lines(0);
        continue;
      }
      const bool ends = next == LineInput::Next::end;
      told(std::string(1, static_cast<char>(ends ? Order::end : Order::wait)));
      if (ends) return;
    }
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
      told(text_of(pieces));
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
  const World& world_;
  Communicator& ranks_;
  ScoreFiles* files_;
  LineRows* rows_;
  std::int64_t lines_ = 0, tokens_ = 0, cut_ = 0, windows_ = 0;
};

void say_start(const ScoreFiles& files, const LineRows& rows, const std::vector<std::string>& head) {
  for (const std::string& text : head) files.say(text);
  const std::string& output = files.line.output;
  if (rows.kept() > 0)
    files.say("goes on behind " + counted(rows.kept(), "row") + " of " + output + ".partial");
  else if (rows.replaced_others())
    files.say(output + ".partial was of another file, model or option; it begins anew");
}

template <class T>
void say_end(const ScoreFiles& files, const ScoreLoop<T>& loop, const Deck& deck, double seconds) {
  files.say(counted(loop.lines(), "line") + ", " + counted(loop.tokens(), "token") + " scored in " +
            formatted("%.1f s", seconds));
  if (loop.cut() > 0)
    files.say(counted(loop.cut(), "context") + (loop.cut() == 1 ? " was" : " were") +
              " longer than train.sequence_tokens = " + std::to_string(deck.train.sequence_tokens) +
              " allows: their first tokens are left out, as left_out of their rows says");
  if (files.line.output != "-") files.say("written: " + files.line.output);
}

template <class T>
void score(const Deck& deck, const World& world, const std::string& choice, ScoreFiles* files) {
  RunSetup setup = scoring_setup(deck, world.rank());
  prepare_device(setup, RunKind::evaluation, world);
  Job<T> job(setup, RunKind::evaluation, world);
  world.watchdog().start_other(0, "scores");
  std::unique_ptr<LineRows> rows;
  if (files) {
    rows = std::make_unique<LineRows>(files->line.output, files->call(deck, job.parameters));
    std::vector<std::string> head{parameters_line(job.parameters) + choice};
    head.insert(head.end(), job.notes.begin(), job.notes.end());
    say_start(*files, *rows, head);
  }
  const auto begin = std::chrono::steady_clock::now();
  Scorer<T> scorer(*job.session);
  ScoreLoop<T> loop(scorer, world, job.mesh.world(), files, rows.get());
  loop.run();
  scorer.finish();
  if (!files) return;
  rows->finish();
  say_end(*files, loop, deck, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

}  // namespace

void run_score(const CommandLine& line, const World& world) {
  Deck deck = load_deck(line, Needs::training, world);
  agree_on_start(deck, world);
  const std::string choice = choose_parameters(line, deck, *world.make_world());
  refuse_scales_of_sequences(line, deck);
  std::unique_ptr<ScoreFiles> files;
  if (world.rank() == 0) files = std::make_unique<ScoreFiles>(line, deck);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { score<T>(deck, world, choice, files.get()); });
}

}  // namespace forge
