#include "app/score_lines.hpp"

#include <algorithm>

#include "app/line_ids.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

using nlohmann::json;

// Of the white space at the end of a text in UTF-8, as Python's rstrip has it: with the separators U+001C to U+001F.
std::size_t end_without_space(const std::string& text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Decoded c = decode_valid(text, at);
    at += c.bytes;
    if (!is_white_space(c.code) && (c.code < 0x1c || c.code > 0x1f)) end = at;
  }
  return end;
}

}  // namespace

// The members of a line.
struct ScoreLines::Fields {
  const json *context = nullptr, *continuation = nullptr;

  Fields(const json& line, const std::string& place) {
    for (const auto& [key, value] : line.items()) {
      if (key != "context" && key != "continuation") continue;
      if (!value.is_string() && !value.is_array())
        throw BadInput(place + ": " + key + " is " + shown_json(value) + "; legal: a text, or a list of token ids");
      (key == "context" ? context : continuation) = &value;
    }
    if (!continuation)
      throw BadInput(place +
                     R"(: has no continuation; legal: {"context": …, "continuation": …}, texts or lists of ids)");
  }
  bool both_texts() const { return context && context->is_string() && continuation->is_string(); }
};

ScoreLine ScoreLines::read(std::string_view line, const std::string& place) const {
  const json parsed = parse_json(std::string(line), place, line_limits);
  const Fields fields(parsed, place);
  const auto encoded = [&](const std::string& text) { return text_.encode(text, place); };
  const auto ids_of = [&](const json& value, const char* name) {
    return ids_of_member(value, name, text_, vocabulary_, place);
  };
  Ids context, continuation;
  if (fields.both_texts()) {
    const std::string before = fields.context->get<std::string>(), text = fields.continuation->get<std::string>();
    const std::size_t end = end_without_space(before);
    const Ids whole = encoded(before + text);
    if (!before.empty()) context = encoded(before.substr(0, end));
    continuation.assign(whole.begin() + std::min<std::ptrdiff_t>(std::ssize(context), std::ssize(whole)), whole.end());
  } else {
    if (fields.context) context = ids_of(*fields.context, "context");
    continuation = ids_of(*fields.continuation, "continuation");
  }
  if (continuation.empty()) throw BadInput(place + ": the continuation has no token to score; legal: at least one");
  if (!fields.context) return in_windows(continuation, place);
  return with_context(std::move(context), std::move(continuation), place);
}

std::int32_t ScoreLines::before_text(const std::string& place) const {
  return token_before_text(text_, place, "context");
}

ScoreLine ScoreLines::with_context(Ids context, Ids continuation, const std::string& place) const {
  if (context.empty()) {
    context.push_back(before_text(place));
    if (continuation.front() == context.front()) continuation.erase(continuation.begin());
    if (continuation.empty())
      throw BadInput(place + ": the continuation is only the token that stands before a text; legal: more than that");
  }
  const std::int64_t labels = std::ssize(continuation);
  if (labels > T_)
    throw BadInput(place + ": the continuation has " + std::to_string(labels) +
                   " tokens, more than train.sequence_tokens = " + std::to_string(T_) +
                   "; legal: at most as many, or no context, whose continuation is scored in windows");
  ScoreLine line;
  line.left_out = std::max<std::int64_t>(0, std::ssize(context) + labels - (T_ + 1));
  ScoredPiece& piece = line.pieces.emplace_back();
  piece.labels = labels;
  piece.tokens.assign(context.begin() + line.left_out, context.end());
  piece.tokens.insert(piece.tokens.end(), continuation.begin(), continuation.end());
  return line;
}

ScoreLine ScoreLines::in_windows(const Ids& continuation, const std::string& place) const {
  Ids all{before_text(place)};
  all.insert(all.end(), continuation.begin(), continuation.end());
  const std::int64_t labels = std::ssize(continuation);
  ScoreLine line;
  for (std::int64_t begin = 0; begin < labels; begin += T_) {
    const std::int64_t end = std::min(begin + T_, labels);
    ScoredPiece& piece = line.pieces.emplace_back();
    piece.tokens.assign(all.begin() + std::max<std::int64_t>(0, end - T_), all.begin() + end + 1);
    piece.labels = end - begin;
  }
  return line;
}

}  // namespace forge
