#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include "app/generate_lines.hpp"
#include "app/job.hpp"
#include "app/line_run.hpp"
#include "app/model_deck.hpp"
#include "app/verbs.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/json.hpp"
#include "core/to_size.hpp"
#include "tokenizer/unicode.hpp"
#include "train/generating.hpp"

namespace forge {

namespace {

using GenerateFiles = LineFiles<GenerateLine, GenerateLines>;

// The options that change rows.
std::string options_of(const CommandLine& line, const Deck& deck) {
  JsonLine options;
  options.add("length", line.length).add("temperature", line.temperature).add("top_k", line.top_k);
  options.add("top_p", line.top_p).add("seed", line.sampling_seed).add("stop", line.stop);
  options.add("ignore_end", line.ignore_end).add("tokens", deck.train.sequence_tokens);
  return options.text();
}

// A TextPart in an order, before its tokens.
struct SentPart {
  std::int64_t text, first, chooses;
  TokenChoice choice;
};

std::string order_of(const std::vector<TextPart>& parts) {
  std::string order = LineOrders::work();
  for (const TextPart& part : parts) {
    const SentPart sent{part.text, part.first, part.choice.has_value(), part.choice.value_or(TokenChoice{})};
    append_record(order, sent, part.tokens);
  }
  return order;
}

std::vector<TextPart> parts_of(const std::string& order) {
  std::vector<TextPart> parts;
  for (std::size_t at = 1; at < order.size();) {
    SentPart sent{};
    std::vector<std::int32_t> tokens = next_record(order, at, sent);
    TextPart& part = parts.emplace_back(TextPart{sent.text, sent.first, std::move(tokens), {}});
    if (sent.chooses != 0) part.choice = sent.choice;
  }
  return parts;
}

// A line's text while it grows: its tokens, the number of those that the model has read, and their characters.
class GrowingText {
 public:
  // `sample`: number of the line among all of the run.
  GrowingText(const GenerateLine& line, const ModelText& text, std::int64_t sample)
      : line_(line), sample_(sample), tokens_(line.prompt), stops_(line.stop) {
    if (text.known()) bytes_.emplace(text);
  }

  // The next tokens for the model, at most so many.
  TextPart part(std::int64_t text, std::int64_t most) {
    const std::int64_t count = std::min(most, std::ssize(tokens_) - given_);
    TextPart part{text, given_, {tokens_.begin() + given_, tokens_.begin() + given_ + count}, {}};
    given_ += count;
    if (given_ == std::ssize(tokens_)) part.choice = choice_of(line_.options, given_, sample_);
    return part;
  }
  // The chosen one; returns whether the text goes on.
  bool add(std::int32_t id) {
    const std::vector<std::int32_t>& ends = line_.options.ends;
    tokens_.push_back(id);
    if (std::ranges::find(ends, id) != ends.end()) return end("token");
    if (bytes_) text_ += stops_.add(bytes_->add(id));
    if (!stops_.found().empty()) return end("stop");
    return std::ssize(tokens_) - std::ssize(line_.prompt) < line_.length || end("length");
  }
  JsonLine row() {
    if (bytes_ && stops_.found().empty()) text_ += stops_.add(bytes_->finish());
    text_ += stops_.finish();
    JsonLine row;
    if (bytes_) row.add("text", replace_ill_formed(text_));
    const std::vector<std::int32_t> ids(tokens_.begin() + std::ssize(line_.prompt), tokens_.end());
    row.add("ids", ids).add("end", std::string(stops_.found().empty() ? end_ : "stop"));
    if (!stops_.found().empty()) row.add("stop", stops_.found());
    if (line_.left_out > 0) row.add("left_out", line_.left_out);
    return row;
  }
  std::int64_t new_tokens() const { return std::ssize(tokens_) - std::ssize(line_.prompt); }

 private:
  bool end(const char* why) {
    end_ = why;
    return false;
  }
  const GenerateLine& line_;
  std::int64_t sample_, given_ = 0;
  std::vector<std::int32_t> tokens_;
  std::optional<TextBytes> bytes_;
  StopTexts stops_;
  std::string text_;
  const char* end_ = "";
};

// A loop of all ranks: the first one orders passes, all do them, the first one writes rows.
template <class T>
class GenerateLoop {
 public:
  // `files`, `rows`: of the first rank, else null.
  GenerateLoop(Generator<T>& generator, const World& world, Communicator& ranks, GenerateFiles* files, LineRows* rows)
      : generator_(generator), rank_(world.rank()), orders_(world, ranks), files_(files), rows_(rows) {}

  void run() {
    if (!files_) return orders_.follow([&](const std::string& order) { pass(parts_of(order)); });
    orders_.lead(*files_, rows_->kept(),
                 [&](std::int64_t first, std::int64_t before) { continue_lines(first, before); });
  }
  std::int64_t lines() const { return lines_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t cut() const { return cut_; }

 private:
  std::vector<std::int32_t> pass(const std::vector<TextPart>& parts) {
    inject_fault(rank_, ++passes_);
    return generator_.pass(parts);
  }

  // The lines at hand from one on; `before`: lines of the run that are gone. A line takes the first place that is free.
  void continue_lines(std::int64_t begin, std::int64_t before) {
    struct Place {
      std::int64_t line;
      GrowingText text;
    };
    const std::vector<GenerateLine>& lines = files_->lines;
    std::vector<std::optional<Place>> places(to_size(generator_.texts()));
    std::map<std::int64_t, std::string> done;  // rows behind one that isn't there yet
    std::int64_t next = begin, written = begin;
    while (written < std::ssize(lines)) {
      std::vector<TextPart> parts;
      for (std::size_t i = 0; i < places.size(); ++i) {
        if (!places[i] && next < std::ssize(lines)) {
          places[i].emplace(Place{next, {lines[to_size(next)], files_->text, before + next}});
          ++next;
        }
        if (places[i]) parts.push_back(places[i]->text.part(static_cast<std::int64_t>(i), generator_.piece()));
      }
      orders_.send(order_of(parts));
      const std::vector<std::int32_t> chosen = pass(parts);
      for (const TextPart& part : parts) {
        std::optional<Place>& place = places[to_size(part.text)];
        if (!part.choice || place->text.add(token_of(part, chosen, place->line))) continue;
        done[place->line] = row_of(place->text, lines[to_size(place->line)]);
        place.reset();
      }
      write(done, written);
    }
  }

  std::int32_t token_of(const TextPart& part, const std::vector<std::int32_t>& chosen, std::int64_t line) const {
    const std::int32_t token = chosen[to_size(part.text)];
    if (token >= 0) return token;
    throw Error(files_->input.place(to_size(line)) + ": the model gives NaN or Inf behind token " +
                    std::to_string(part.first + std::ssize(part.tokens) - 1) +
                    " of the text; legal: a precision that holds the model's numbers (--precision fp32 | fp64)",
                ExitCode::not_finite);
  }
  std::string row_of(GrowingText& text, const GenerateLine& line) {
    ++lines_;
    tokens_ += text.new_tokens();
    cut_ += line.left_out > 0;
    return text.row().text();
  }
  // Rows that are next in the order of the lines.
  void write(std::map<std::int64_t, std::string>& done, std::int64_t& written) {
    std::string text;
    std::int64_t count = 0;
    while (!done.empty() && done.begin()->first == written + count) {
      text += done.begin()->second;
      done.erase(done.begin());
      ++count;
    }
    if (count > 0) rows_->write(text, count);
    written += count;
  }

  Generator<T>& generator_;
  int rank_;
  LineOrders orders_;
  GenerateFiles* files_;
  LineRows* rows_;
  std::int64_t lines_ = 0, tokens_ = 0, cut_ = 0, passes_ = 0;
};

template <class T>
void say_start(const GenerateFiles& files, const LineRows& rows, const Job<T>& job, const std::string& choice) {
  files.say(parameters_line(job.parameters) + choice);
  for (const std::string& note : job.notes) files.say(note);
  const GenerationBuffers<T>& kept = job.session->generation();
  const auto bytes = to_size(kept.keys.size() + kept.values.size()) * sizeof(T) + kept.delta.bytes();
  files.say((kept.delta.states.empty() ? "keys and values of " : "keys, values and states of ") +
            counted(job.setup.deck.train.microbatch_sequences, "text") + " of " +
            counted(job.setup.buffers.cache_tokens, "token") + ": " + format_bytes(bytes) + " of the " +
            format_bytes(job.memory.total()) + " planned for rank 0");
  files.say_start(rows);
}

void refuse_what_generation_lacks(const Deck& deck) {
  refuse_long_text(deck.model, deck.train.sequence_tokens);
  if (deck.mesh.cp > 1)
    throw BadInput("forge generate --prompts: mesh.cp = " + std::to_string(deck.mesh.cp) +
                   ", but a text's keys and values stay together; legal: mesh.cp = 1, and ranks on any other axis");
}

template <class T>
void generate(const CommandLine& line, const Deck& deck, const World& world, const std::string& choice,
              GenerateFiles* files) {
  RunSetup setup = generation_setup(deck, world.rank(), line.piece);
  prepare_device(setup, RunKind::evaluation, world);
  Job<T> job(setup, RunKind::evaluation, world);
  world.watchdog().start_other(0, "texts");
  std::unique_ptr<LineRows> rows;
  if (files) {
    rows = std::make_unique<LineRows>(line.output, files->call(deck, options_of(line, deck), job.parameters));
    say_start(*files, *rows, job, choice);
  }
  const auto begin = std::chrono::steady_clock::now();
  Generator<T> generator(*job.session);
  GenerateLoop<T> loop(generator, world, job.mesh.world(), files, rows.get());
  loop.run();
  generator.finish();
  if (!files) return;
  rows->finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  files->say(counted(loop.lines(), "text") + ", " + counted(loop.tokens(), "token") + " in " +
             formatted("%.1f s", seconds));
  files->say_end(loop.cut(), "prompt", deck);
}

}  // namespace

void run_generate_lines(const CommandLine& line, const World& world) {
  Deck deck = load_deck(line, Needs::training, world);
  agree_on_start(deck, world);
  refuse_what_generation_lacks(deck);
  const std::string choice = choose_parameters(line, deck, *world.make_world());
  refuse_scales_of_sequences(line, deck);
  std::unique_ptr<GenerateFiles> files;
  if (world.rank() == 0) files = std::make_unique<GenerateFiles>(line, deck, line.prompts);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { generate<T>(line, deck, world, choice, files.get()); });
}

}  // namespace forge
