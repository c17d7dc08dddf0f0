#include "data/tokenize_text.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>

#include "config/output_lock.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "data/json_line.hpp"
#include "data/resumable_tokens.hpp"
#include "data/text_file.hpp"
#include "data/token_writer.hpp"
#include "tokenizer/parallel_encoder.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

constexpr std::size_t default_round_bytes = 2 << 20;  // a thread: what the caches of a machine's cores hold
constexpr std::size_t task_bytes = 1 << 17;           // of small documents
constexpr std::size_t long_document_bytes = 2 << 20;  // dealt out to all threads
constexpr std::size_t most_document_bytes = std::size_t{1} << 38;

// Documents of one file that are encoded in one go: a whole text, or lines of a .jsonl file.
struct Task {
  std::string_view bytes;
  std::size_t file = 0;
  std::int64_t first_line = 0;  // 0: a text
};

// What is worked on at a time.
struct Round {
  std::vector<std::unique_ptr<std::string>> buffers;
  std::vector<Task> tasks;
  TokenizePosition end;  // behind it
  double done = 0;       // of all input bytes, as they are stored
};

struct Encoded {
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> ends;  // of documents, in ids
  std::int64_t bytes = 0, documents = 0;
};

// Reads rounds, in the order of the files.
class RoundReader {
 public:
  RoundReader(const TokenizeTextOptions& options, std::size_t round_bytes, const TokenizePosition& begin)
      : options_(options), round_bytes_(round_bytes), at_(begin) {
    for (const std::string& input : options.inputs)
      total_ += std::filesystem::file_size(input), ends_.push_back(total_);
    if (at_.file < options.inputs.size() && at_.offset > 0) skip(at_.offset);
  }

  Round next() {
    Round round;
    std::size_t bytes = 0;
    while (bytes < round_bytes_ && at_.file < options_.inputs.size()) {
      if (!file_) file_.emplace(options_.inputs[at_.file]);
      bytes += file_->kind().json_lines ? read_lines(round, round_bytes_ - bytes) : read_text(round);
    }
    round.end = at_;
    const std::uint64_t before = at_.file == 0 ? 0 : ends_[at_.file - 1];
    round.done =
        total_ == 0 ? 1 : static_cast<double>(before + (file_ ? file_->position() : 0)) / static_cast<double>(total_);
    return round;
  }
  std::uint64_t total() const { return total_; }

 private:
  void skip(std::uint64_t bytes) {
    file_.emplace(options_.inputs[at_.file]);
    std::string dropped;
    while (bytes > 0) {
      dropped.clear();
      if (!file_->read(dropped, to_size(std::min<std::uint64_t>(bytes, 1 << 20))))
        throw BadInput(options_.inputs[at_.file] + ": ends before the place where the killed run stopped");
      bytes -= dropped.size();
    }
  }
  void next_file() {
    file_.reset();
    rest_.clear();
    ++at_.file;
    at_.offset = 0;
    at_.line = 1;
  }
  std::size_t read_text(Round& round) {
    auto buffer = std::make_unique<std::string>();
    while (file_->read(*buffer, 4 << 20))
      if (buffer->size() > most_document_bytes)
        throw BadInput(options_.inputs[at_.file] + ": a text of too many bytes");
    const std::size_t bytes = buffer->size();
    if (bytes > 0) round.tasks.push_back({*buffer, at_.file, 0});
    round.buffers.push_back(std::move(buffer));
    next_file();
    return bytes;
  }
  // Whole lines; what is left of the last one waits.
  std::size_t read_lines(Round& round, std::size_t most) {
    auto buffer = std::make_unique<std::string>(std::move(rest_));
    rest_.clear();
    std::size_t from = 0;
    bool more = true;
    std::size_t cut = std::string::npos;
    while (more) {
      more = file_->read(*buffer, std::max<std::size_t>(most > buffer->size() ? most - buffer->size() : 0, 1 << 20));
      cut = buffer->rfind('\n');
      if (cut != std::string::npos && cut >= from) break;
      from = buffer->size();
    }
    const bool ended = !more;
    const std::size_t end = ended ? buffer->size() : cut + 1;
    rest_ = buffer->substr(end);
    buffer->resize(end);
    add_lines(round, *buffer);
    at_.offset += end;
    round.buffers.push_back(std::move(buffer));
    if (ended) next_file();
    return end;
  }
  void add_lines(Round& round, std::string_view lines) {
    while (!lines.empty()) {
      std::size_t end = lines.size() <= task_bytes ? lines.size() : lines.find('\n', task_bytes);
      end = end == std::string_view::npos ? lines.size() : std::min(end + 1, lines.size());
      const std::string_view part = lines.substr(0, end);
      round.tasks.push_back({part, at_.file, at_.line});
      at_.line += std::count(part.begin(), part.end(), '\n');
      lines.remove_prefix(end);
    }
  }

  const TokenizeTextOptions& options_;
  std::size_t round_bytes_;
  TokenizePosition at_;
  std::optional<TextFile> file_;
  std::string rest_;
  std::vector<std::uint64_t> ends_;
  std::uint64_t total_ = 0;
};

[[noreturn]] void refuse_line(const TokenizeTextOptions& options, const Task& task, std::int64_t line,
                              JsonLineKind found, std::size_t at) {
  const std::string where = options.inputs[task.file] + ":" + std::to_string(line) + ": ";
  if (found == JsonLineKind::no_json)
    throw BadInput(where + "not JSON at byte " + std::to_string(at) + " of the line; legal: a map {...} on each line");
  throw BadInput(where + "the field " + shown(options.field) +
                 (found == JsonLineKind::no_field ? " is missing" : " is no text") +
                 "; legal: text; --field names another one");
}

// The text of a document as it is tokenized. False: there is none.
template <class Use>
bool use_document(std::string_view bytes, const Use& use) {
  if (bytes.empty()) return false;
  if (is_valid_utf8(bytes))
    use(bytes);
  else
    use(std::string_view(replace_ill_formed(bytes)));
  return true;
}

// The documents of some lines; empty lines have none.
template <class Use>
void use_lines(const TokenizeTextOptions& options, const Task& task, const Use& use) {
  std::string_view rest = task.bytes;
  std::string text, repaired;
  if (constexpr std::string_view mark = "\xEF\xBB\xBF"; task.first_line == 1 && rest.starts_with(mark))
    rest.remove_prefix(mark.size());
  for (std::int64_t line_number = task.first_line; !rest.empty(); ++line_number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (!is_valid_utf8(line)) line = repaired = replace_ill_formed(line);
    std::size_t at = 0;
    const JsonLineKind found = read_json_field(line, options.field, text, at);
    if (found != JsonLineKind::found) refuse_line(options, task, line_number, found, at);
    use(std::string_view(text));
  }
}

class RoundEncoder {
 public:
  RoundEncoder(const Tokenizer& tokenizer, const TokenizeTextOptions& options)
      : options_(options), encoder_(tokenizer, options.threads) {}

  int threads() const { return encoder_.threads(); }

  std::vector<Encoded> encode(const Round& round) {
    std::vector<Encoded> results(round.tasks.size());
    std::vector<std::size_t> small;
    for (std::size_t i = 0; i < round.tasks.size(); ++i)
      if (round.tasks[i].first_line > 0 || round.tasks[i].bytes.size() < long_document_bytes) small.push_back(i);
    encoder_.run(small.size(), [&](Encoder& encoder, std::size_t i) {
      const Task& task = round.tasks[small[i]];
      task.first_line > 0 ? encode_lines(encoder, task, results[small[i]])
                          : add_document(task.bytes, results[small[i]],
                                         [&](std::string_view text, auto& ids) { encoder.encode(text, ids); });
    });
    for (std::size_t i = 0; i < round.tasks.size(); ++i)
      if (round.tasks[i].first_line == 0 && round.tasks[i].bytes.size() >= long_document_bytes)
        add_document(round.tasks[i].bytes, results[i],
                     [&](std::string_view text, auto& ids) { encoder_.encode(text, ids); });
    return results;
  }

 private:
  template <class Encode>
  void add_document(std::string_view bytes, Encoded& to, const Encode& encode) const {
    if (use_document(bytes, [&](std::string_view text) { encode(text, to.ids); })) end_document(bytes, to);
  }
  void end_document(std::string_view bytes, Encoded& to) const {
    to.bytes += static_cast<std::int64_t>(bytes.size());
    ++to.documents;
    if (options_.document_end >= 0) to.ids.push_back(options_.document_end);
    to.ends.push_back(to.ids.size());
  }
  void encode_lines(Encoder& encoder, const Task& task, Encoded& to) const {
    // The text of a line is valid UTF-8.
    use_lines(options_, task, [&](std::string_view text) {
      if (text.empty()) return;
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
  explicit Progress(const TokenizeTextOptions& options, double before) : options_(options), before_(before) {}
  void report(double done, std::int64_t bytes, std::int64_t tokens) {
    const auto now = Clock::now();
    if (!options_.say || now - last_ < std::chrono::seconds(10)) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double share = done - before_;
    char text[160];
    std::snprintf(text, sizeof text, "%.1f %%, %s of text, %s tokens, %.1f MB/s, %s left", 100 * done,
                  format_bytes(static_cast<std::uint64_t>(bytes)).c_str(),
                  format_count(static_cast<double>(tokens)).c_str(),
                  static_cast<double>(bytes - first_bytes_) / seconds / 1e6,
                  format_seconds(share > 0 ? seconds * (1 - done) / share : 1e10).c_str());
    options_.say(text);
  }
  void start_at(std::int64_t bytes) { first_bytes_ = bytes; }

 private:
  using Clock = std::chrono::steady_clock;
  const TokenizeTextOptions& options_;
  double before_;
  std::int64_t first_bytes_ = 0;
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
  for (const std::string& input : options.inputs) TextFile file(input);  // before anything is written
  check_output(options.inputs, options.output);
}

}  // namespace

std::int64_t read_documents(const TokenizeTextOptions& options, const std::function<void(std::string_view)>& use) {
  for (const std::string& input : options.inputs) TextFile file(input);
  RoundReader reader(options, default_round_bytes, {});
  std::int64_t bytes = 0;
  const auto take = [&](std::string_view document) {
    bytes += static_cast<std::int64_t>(document.size());
    use_document(document, use);
  };
  while (true) {
    const Round round = reader.next();
    for (const Task& task : round.tasks) task.first_line > 0 ? use_lines(options, task, take) : take(task.bytes);
    if (round.end.file == options.inputs.size()) return bytes;
  }
}

namespace {

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
      formatted_ = TokenWriter::open(options.output, *format, tokenizer.vocabulary());
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
                std::to_string(result.tokens) + " tokens");
  Progress progress(options, 0);
  progress.start_at(result.bytes);
  const auto write = [&](const std::vector<Encoded>& parts, const TokenizePosition& end, double done) {
    for (const Encoded& part : parts) {
      writer.write(part);
      result.bytes += part.bytes;
      result.documents += part.documents;
      result.tokens += static_cast<std::int64_t>(part.ids.size());
    }
    writer.keep(end, result);
    if (options.after_round) options.after_round();
    progress.report(done, result.bytes, result.tokens);
  };
  // The next round is read, and the one before is written, while this one is encoded.
  std::future<Round> next = std::async(std::launch::async, [&] { return reader.next(); });
  std::future<void> written;
  while (true) {
    const Round round = next.get();
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
