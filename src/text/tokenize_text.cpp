#include "text/tokenize_text.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <optional>

#include "config/output_lock.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "text/resumable_tokens.hpp"
#include "text/text_documents.hpp"
#include "text/token_writer.hpp"
#include "tokenizer/parallel_encoder.hpp"

namespace forge {

namespace {

constexpr std::size_t default_round_bytes = 2 << 20;  // a thread: what the caches of a machine's cores hold
constexpr std::size_t long_document_bytes = 2 << 20;  // dealt out to all threads

struct Encoded {
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> ends;  // of documents, in ids
  std::int64_t bytes = 0, documents = 0;
  IllFormedBytes ill_formed;
};

class RoundEncoder {
 public:
  RoundEncoder(const Tokenizer& tokenizer, const TokenizeTextOptions& options)
      : options_(options), encoder_(tokenizer, options.threads) {}

  int threads() const { return encoder_.threads(); }

  std::vector<Encoded> encode(const TextRound& round) {
    std::vector<Encoded> results(round.tasks.size());
    std::vector<std::size_t> small;
    for (std::size_t i = 0; i < round.tasks.size(); ++i)
      if (round.tasks[i].first_line > 0 || round.tasks[i].bytes.size() < long_document_bytes) small.push_back(i);
    encoder_.run(small.size(), [&](Encoder& encoder, std::size_t i) {
      const TextTask& task = round.tasks[small[i]];
      task.first_line > 0
          ? encode_lines(encoder, task, results[small[i]])
          : add_document(task, results[small[i]], [&](std::string_view text, auto& ids) { encoder.encode(text, ids); });
    });
    for (std::size_t i = 0; i < round.tasks.size(); ++i)
      if (round.tasks[i].first_line == 0 && round.tasks[i].bytes.size() >= long_document_bytes)
        add_document(round.tasks[i], results[i], [&](std::string_view text, auto& ids) { encoder_.encode(text, ids); });
    return results;
  }

 private:
  template <class Encode>
  void add_document(const TextTask& task, Encoded& to, const Encode& encode) const {
    const auto begin_and_encode = [&](std::string_view text) {
      begin_document(to);
      encode(text, to.ids);
    };
    if (use_text(options_, task, to.ill_formed, begin_and_encode)) end_document(task.bytes, to);
  }
  void begin_document(Encoded& to) const {
    if (options_.document_begin >= 0) to.ids.push_back(options_.document_begin);
  }
  void end_document(std::string_view bytes, Encoded& to) const {
    to.bytes += static_cast<std::int64_t>(bytes.size());
    ++to.documents;
    if (options_.document_end >= 0) to.ids.push_back(options_.document_end);
    to.ends.push_back(to.ids.size());
  }
  void encode_lines(Encoder& encoder, const TextTask& task, Encoded& to) const {
    // The text of a line is valid UTF-8.
    use_lines(options_, task, to.ill_formed, [&](std::string_view text) {
      if (text.empty()) return;
      begin_document(to);
      encoder.encode(text, to.ids);
      end_document(text, to);
    });
  }

  const TokenizeTextOptions& options_;
  ParallelEncoder encoder_;
};

// Lines about how far it is, at most one every ten seconds.
class Progress {
 public:
  Progress(const TokenizeTextOptions& options, std::int64_t first_bytes)
      : options_(options), first_bytes_(first_bytes) {}
  void report(double done, std::int64_t bytes, std::int64_t tokens) {
    const auto now = Clock::now();
    if (!options_.say || now - last_ < std::chrono::seconds(10)) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    options_.say(formatted("%.1f %%, %s of text, %s tokens, %.1f MB/s, %s left", 100 * done,
                           format_bytes(static_cast<std::uint64_t>(bytes)).c_str(),
                           format_count(static_cast<double>(tokens)).c_str(),
                           static_cast<double>(bytes - first_bytes_) / seconds / 1e6,
                           format_seconds(done > 0 ? seconds * (1 - done) / done : 1e10).c_str()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  const TokenizeTextOptions& options_;
  std::int64_t first_bytes_;
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

void check(const Tokenizer& tokenizer, const TokenizeTextOptions& options) {
  if (options.inputs.empty()) throw BadInput("tokenize: no text file is named");
  if (options.output.empty()) throw BadInput("tokenize: no output file is named");
  const bool npy = options.format == OutputFormat::npy;
  if (options.output.ends_with(".npy") != npy)
    throw BadInput(options.output + ": --format npy and a name that ends in .npy go together");
  if (options.format == OutputFormat::uint16 && tokenizer.vocabulary() > 65536)
    throw BadInput("--format uint16: " + tokenizer.name() + " has " + std::to_string(tokenizer.vocabulary()) +
                   " ids; legal: uint32 or npy");
  check_texts(options);  // before anything is written
  check_output(options.inputs, options.output);
}

// Of formats whose documents or headers need a writer of their own.
std::optional<TokenFormat> format_of(OutputFormat format) {
  switch (format) {
    case OutputFormat::megatron:
      return TokenFormat::megatron;
    case OutputFormat::llm_c:
      return TokenFormat::llm_c;
    case OutputFormat::ds:
      return TokenFormat::ds;
    default:
      return {};
  }
}

// A token file from front to back: one that a killed run goes on with, or one of a format that has none of that.
class DocumentOutput {
 public:
  DocumentOutput(const Tokenizer& tokenizer, const TokenizeTextOptions& options, bool wide) {
    if (const auto format = format_of(options.format))
      remove_notes(options.output), formatted_ = TokenWriter::open(options.output, *format, tokenizer.vocabulary());
    else
      resumable_.emplace(tokenizer, options, wide);
  }

  TokenizeTextResult resumed() const { return resumable_ ? resumable_->resumed() : TokenizeTextResult{}; }
  TokenizePosition position() const { return resumable_ ? resumable_->position() : TokenizePosition{}; }
  void write(const Encoded& part) {
    if (resumable_) return resumable_->write(part.ids);
    std::size_t begin = 0;
    for (const std::size_t end : part.ends) {
      formatted_->append({part.ids.data() + begin, end - begin});
      formatted_->end_document();
      begin = end;
    }
  }
  void keep(const TokenizePosition& position, const TokenizeTextResult& result) {
    if (resumable_) resumable_->keep(position, result);
  }
  void finish() { resumable_ ? resumable_->finish() : formatted_->finish(); }

 private:
  std::optional<ResumableTokens> resumable_;
  std::unique_ptr<TokenWriter> formatted_;
};

}  // namespace

TokenizeTextResult tokenize_text(const Tokenizer& tokenizer, const TokenizeTextOptions& options) {
  check(tokenizer, options);
  RoundEncoder encoder(tokenizer, options);
  const bool wide = options.format == OutputFormat::uint32 ||
                    (options.format != OutputFormat::uint16 && tokenizer.vocabulary() > 65536);
  const OutputLock lock(options.output);
  DocumentOutput writer(tokenizer, options, wide);
  TokenizeTextResult result = writer.resumed();
  result.wide = wide;
  const std::size_t round_bytes =
      options.round_bytes > 0 ? options.round_bytes : default_round_bytes * to_size(encoder.threads());
  RoundReader reader(options, round_bytes, writer.position());
  if (options.say && result.resumed)
    options.say("going on behind " + format_bytes(static_cast<std::uint64_t>(result.bytes)) + " of text, " +
                counted(result.tokens, "token"));
  Progress progress(options, result.bytes);
  const auto write = [&](const std::vector<Encoded>& parts, const TokenizePosition& end, double done) {
    for (const Encoded& part : parts) {
      writer.write(part);
      result.bytes += part.bytes;
      result.documents += part.documents;
      result.ill_formed.add(part.ill_formed);
      result.tokens += static_cast<std::int64_t>(part.ids.size());
    }
    writer.keep(end, result);
    if (options.after_round) options.after_round();
    progress.report(done, result.bytes, result.tokens);
  };
  // The next round is read, and the one before is written, while this one is encoded.
  std::future<TextRound> next = std::async(std::launch::async, [&] { return reader.next(); });
  std::future<void> written;
  while (true) {
    const TextRound round = next.get();
    if (round.tasks.empty() && round.end.file == options.inputs.size()) break;
    next = std::async(std::launch::async, [&] { return reader.next(); });
    std::vector<Encoded> parts = encoder.encode(round);
    if (written.valid()) written.get();
    written = std::async(std::launch::async, [&write, parts = std::move(parts), end = round.end, done = round.done] {
      write(parts, end, done);
    });
  }
  if (written.valid()) written.get();
  if (result.tokens == 0) throw BadInput("tokenize: the text is empty");
  writer.finish();
  return result;
}

}  // namespace forge
