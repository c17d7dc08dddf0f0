#include "tokenizer/pre_tokenizer.hpp"

#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

using Emit = PreTokenizer::Emit;

// The pieces of a text as its matches come: what stands between them is a part that matches not.
class Cutter {
 public:
  Cutter(TextPiece piece, SplitBehavior behavior, bool invert, const Emit& emit)
      : piece_(piece), behavior_(behavior), invert_(invert), emit_(emit) {}

  void match(std::size_t begin, std::size_t end) {
    if (done_ != begin) part(done_, begin, invert_);
    part(begin, end, !invert_);
    done_ = end;
  }
  void finish() {
    if (done_ != piece_.text.size()) part(done_, piece_.text.size(), invert_);
    if (open_) out(begin_, end_);
  }

 private:
  void out(std::size_t begin, std::size_t end) {
    if (begin < end) emit_({piece_.text.substr(begin, end - begin), piece_.first && begin == 0});
  }
  void start(std::size_t begin, std::size_t end) {
    if (open_) out(begin_, end_);
    begin_ = begin;
    end_ = end;
    open_ = true;
  }
  // The parts in order; one is held back where the next may join it.
  void part(std::size_t begin, std::size_t end, bool matched) {
    switch (behavior_) {
      case SplitBehavior::removed:
        if (!matched) out(begin, end);
        break;
      case SplitBehavior::isolated:
        out(begin, end);
        break;
      case SplitBehavior::contiguous:
        open_&& matched == previous_ ? void(end_ = end) : start(begin, end);
        break;
      case SplitBehavior::merged_with_previous:
        open_&& matched && !previous_ ? void(end_ = end) : start(begin, end);
        break;
      case SplitBehavior::merged_with_next:
        // Of a run of matches the last one joins what follows.
        open_&& previous_ && !matched ? void(end_ = end) : start(begin, end);
        break;
    }
    previous_ = matched;
  }

  TextPiece piece_;
  SplitBehavior behavior_;
  bool invert_;
  const Emit& emit_;
  std::size_t done_ = 0, begin_ = 0, end_ = 0;
  bool open_ = false, previous_ = false;
};

bool is_of(CharacterKind kind, char32_t code) {
  switch (kind) {
    case CharacterKind::numeric:
      return is_numeric(code);
    case CharacterKind::white_space:
      return is_white_space(code);
    default:
      return is_punctuation(code);
  }
}

void cut_at(TextPiece piece, std::string_view pattern, SplitBehavior behavior, bool invert, const Emit& emit) {
  Cutter cutter(piece, behavior, invert, emit);
  for (std::size_t at = piece.text.find(pattern); at != std::string_view::npos;
       at = piece.text.find(pattern, at + pattern.size()))
    cutter.match(at, at + pattern.size());
  cutter.finish();
}

// Behind a match, where no piece goes on.
std::size_t cut_behind_character(CharacterKind kind, std::string_view text, std::size_t from) {
  while (from > 0 && from < text.size() && continues_character(text[from])) --from;
  while (from < text.size()) {
    const Decoded c = decode_valid(text, from);
    from += c.bytes;
    if (is_of(kind, c.code)) break;
  }
  return from;
}

}  // namespace

PreTokenizer make_split(const Regex& pattern, SplitBehavior behavior, bool invert) {
  PreTokenizer step{[=](TextPiece piece, std::string& made, RegexScratch& regex, const Emit& emit) {
    Cutter cutter(piece, behavior, invert, emit);
    Regex::Match match;
    const std::string_view seen = with_stand_ins(piece.text, made);
    for (RegexMatches matches(pattern, regex, seen); matches.next(match);) cutter.match(match.begin, match.end);
    cutter.finish();
  }};
  if (behavior == SplitBehavior::isolated && pattern.forward()) step.cutting_pattern = pattern;
  return step;
}

PreTokenizer make_split(const std::string& text, SplitBehavior behavior, bool invert) {
  return {[=](TextPiece piece, std::string&, RegexScratch&, const Emit& emit) {
    cut_at(piece, text, behavior, invert, emit);
  }};
}

PreTokenizer make_split_characters(CharacterKind kind, SplitBehavior behavior) {
  PreTokenizer step{[=](TextPiece piece, std::string&, RegexScratch&, const Emit& emit) {
    Cutter cutter(piece, behavior, false, emit);
    for (std::size_t at = 0; at < piece.text.size();) {
      const Decoded c = decode_valid(piece.text, at);
      if (is_of(kind, c.code)) cutter.match(at, at + c.bytes);
      at += c.bytes;
    }
    cutter.finish();
  }};
  if (behavior == SplitBehavior::removed || behavior == SplitBehavior::isolated)
    step.cut_behind = [=](std::string_view text, std::size_t from) { return cut_behind_character(kind, text, from); };
  return step;
}

PreTokenizer make_metaspace(const std::string& replacement, PrependScheme scheme, bool split) {
  PreTokenizer step{[=](TextPiece piece, std::string& made, RegexScratch&, const Emit& emit) {
    made.clear();
    const bool begins = piece.text.starts_with(' ') || piece.text.starts_with(replacement);
    const bool wanted = scheme == PrependScheme::always || (scheme == PrependScheme::first && piece.first);
    if (wanted && !begins) made += replacement;
    for (const char byte : piece.text) byte == ' ' ? void(made += replacement) : made.push_back(byte);
    if (!split) return emit({made, piece.first});
    cut_at({made, piece.first}, replacement, SplitBehavior::merged_with_next, false, emit);
  }};
  step.keeps_whole = !split;
  return step;
}

PreTokenizer make_prefix_space() {
  return {[](TextPiece piece, std::string& made, RegexScratch&, const Emit& emit) {
    if (piece.text.starts_with(' ')) return emit(piece);
    made.assign(1, ' ').append(piece.text);
    emit({made, piece.first});
  }};
}

PreTokenizer make_byte_alphabet() {
  return {[](TextPiece piece, std::string& made, RegexScratch&, const Emit& emit) {
    made = to_byte_alphabet(piece.text);
    emit({made, piece.first});
  }};
}

}  // namespace forge
