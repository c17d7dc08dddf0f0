#include "text/text_documents.hpp"

#include <algorithm>
#include <filesystem>

#include "config/text.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "text/json_line.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

constexpr std::size_t task_bytes = 1 << 17;  // of small documents
constexpr std::size_t most_document_bytes = std::size_t{1} << 38;
constexpr std::size_t read_round_bytes = 2 << 20;

// Of a map without the field that is asked for.
const char* chat_hint(std::string_view line) {
  for (const std::string_view name : {"\"messages\"", "\"conversations\"", "\"prompt\""})
    if (line.find(name) != std::string_view::npos) return ", and jobscripts/prepare_chat.py reads chats";
  return "";
}

[[noreturn]] void refuse_line(const TokenizeTextOptions& options, const TextTask& task, std::int64_t line,
                              std::string_view text, JsonLineKind found, std::size_t at) {
  const std::string where = options.inputs[task.file] + ":" + std::to_string(line) + ": ";
  if (found == JsonLineKind::no_json)
    throw BadInput(where + "not JSON at byte " + std::to_string(at) + " of the line; legal: a map {...} on each line");
  throw BadInput(where + "the field " + shown(options.field) +
                 (found == JsonLineKind::no_field ? " is missing" : " is no text") +
                 "; legal: text; --field names another one" + chat_hint(text));
}

// The text with U+FFFD in the place of what is ill-formed, which is counted; the text itself where nothing is. `line`:
// 0 of a whole text.
std::string_view repaired(std::string_view bytes, const std::string& file, std::int64_t line, std::string& buffer,
                          IllFormedBytes& ill_formed) {
  if (is_valid_utf8(bytes)) {
    ill_formed.of += static_cast<std::int64_t>(bytes.size());
    return bytes;
  }
  ill_formed.count(bytes, line > 0 ? file + ":" + std::to_string(line) : file, 0, line == 0, true);
  buffer = replace_ill_formed(bytes);
  return buffer;
}

}  // namespace

RoundReader::RoundReader(const TokenizeTextOptions& options, std::size_t round_bytes, const TokenizePosition& begin)
    : options_(options), round_bytes_(round_bytes), at_(begin) {
  for (const std::string& input : options.inputs) total_ += std::filesystem::file_size(input), ends_.push_back(total_);
  if (at_.file < options.inputs.size() && at_.offset > 0) skip(at_.offset);
}

void RoundReader::open_file() {
  file_.emplace(options_.inputs[at_.file], options_.field);
}

TextRound RoundReader::next() {
  TextRound round;
  std::size_t bytes = 0;
  while (bytes < round_bytes_ && at_.file < options_.inputs.size()) {
    if (!file_) open_file();
    bytes += file_->kind().json_lines ? read_lines(round, round_bytes_ - bytes) : read_text(round);
  }
  round.end = at_;
  const std::uint64_t before = at_.file == 0 ? 0 : ends_[at_.file - 1];
  round.done =
      total_ == 0 ? 1 : static_cast<double>(before + (file_ ? file_->position() : 0)) / static_cast<double>(total_);
  return round;
}

void RoundReader::skip(std::uint64_t bytes) {
  open_file();
  std::string dropped;
  while (bytes > 0) {
    dropped.clear();
    if (!file_->read(dropped, to_size(std::min<std::uint64_t>(bytes, 1 << 20))))
      throw BadInput(options_.inputs[at_.file] + ": ends before the place where the killed run stopped");
    bytes -= dropped.size();
  }
}

void RoundReader::next_file() {
  file_.reset();
  rest_.clear();
  ++at_.file;
  at_.offset = 0;
  at_.line = 1;
}

std::size_t RoundReader::read_text(TextRound& round) {
  auto buffer = std::make_unique<std::string>();
  while (file_->read(*buffer, 4 << 20))
    if (buffer->size() > most_document_bytes) throw BadInput(options_.inputs[at_.file] + ": a text of too many bytes");
  const std::size_t bytes = buffer->size();
  if (bytes > 0) round.tasks.push_back({*buffer, at_.file, 0});
  round.buffers.push_back(std::move(buffer));
  next_file();
  return bytes;
}

// Whole lines; what is left of the last one waits.
std::size_t RoundReader::read_lines(TextRound& round, std::size_t most) {
  auto buffer = std::make_unique<std::string>(std::move(rest_));
  rest_.clear();
  bool more = true;
  std::size_t end = std::string::npos;
  while (more && end == std::string::npos) {
    const std::size_t before = buffer->size();
    more = file_->read(*buffer, std::max<std::size_t>(most > before ? most - before : 0, 1 << 20));
    // What was there before has no end of a line, so that long lines are not searched again and again.
    const std::size_t last = std::string_view(*buffer).substr(before).rfind('\n');
    if (last != std::string::npos) end = before + last + 1;
    if (buffer->size() > most_document_bytes) throw BadInput(options_.inputs[at_.file] + ": a line of too many bytes");
  }
  if (!more) end = buffer->size();
  rest_ = buffer->substr(end);
  buffer->resize(end);
  add_lines(round, *buffer);
  at_.offset += end;
  round.buffers.push_back(std::move(buffer));
  if (!more) next_file();
  return end;
}

void RoundReader::add_lines(TextRound& round, std::string_view lines) {
  while (!lines.empty()) {
    std::size_t end = lines.size() <= task_bytes ? lines.size() : lines.find('\n', task_bytes);
    end = end == std::string_view::npos ? lines.size() : std::min(end + 1, lines.size());
    const std::string_view part = lines.substr(0, end);
    round.tasks.push_back({part, at_.file, at_.line});
    at_.line += std::count(part.begin(), part.end(), '\n');
    lines.remove_prefix(end);
  }
}

bool use_text(const TokenizeTextOptions& options, const TextTask& task, IllFormedBytes& ill_formed,
              const UseDocument& use) {
  if (task.bytes.empty()) return false;
  std::string buffer;
  use(repaired(task.bytes, options.inputs[task.file], 0, buffer, ill_formed));
  return true;
}

void use_lines(const TokenizeTextOptions& options, const TextTask& task, IllFormedBytes& ill_formed,
               const UseDocument& use) {
  std::string_view rest = task.bytes;
  std::string text, buffer;
  if (constexpr std::string_view mark = "\xEF\xBB\xBF"; task.first_line == 1 && rest.starts_with(mark))
    rest.remove_prefix(mark.size());
  for (std::int64_t line_number = task.first_line; !rest.empty(); ++line_number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    line = repaired(line, options.inputs[task.file], line_number, buffer, ill_formed);
    std::size_t at = 0;
    const JsonLineKind found = read_json_field(line, options.field, text, at);
    if (found != JsonLineKind::found) refuse_line(options, task, line_number, line, found, at);
    use(std::string_view(text));
  }
}

void check_texts(const TokenizeTextOptions& options) {
  constexpr std::size_t most = 10;
  std::vector<std::string> wrong;
  for (const std::string& input : options.inputs) {
    try {
      const TextFile file(input, options.field);
    } catch (const BadInput& error) {
      wrong.emplace_back(error.what());
    }
    if (wrong.size() == most) break;
  }
  if (wrong.size() == 1) throw BadInput(wrong.front());
  if (!wrong.empty())
    throw BadInput((wrong.size() == most ? "ten texts or more" : std::to_string(wrong.size()) + " texts") +
                   " can't be read:\n  " + joined(wrong, "\n  "));
}

std::int64_t read_documents(const TokenizeTextOptions& options, const UseDocument& use, IllFormedBytes* ill_formed) {
  check_texts(options);
  RoundReader reader(options, read_round_bytes, {});
  IllFormedBytes counted;
  std::int64_t bytes = 0;
  while (true) {
    const TextRound round = reader.next();
    for (const TextTask& task : round.tasks) {
      if (task.first_line == 0) {
        bytes += static_cast<std::int64_t>(task.bytes.size());
        use_text(options, task, counted, use);
      } else {
        use_lines(options, task, counted, [&](std::string_view text) {
          bytes += static_cast<std::int64_t>(text.size());
          if (!text.empty()) use(text);
        });
      }
    }
    if (round.end.file < options.inputs.size()) continue;
    if (ill_formed) *ill_formed = counted;
    return bytes;
  }
}

}  // namespace forge
