#include "tokenizer/pre_tokenizer.hpp"

#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

// The pieces of a text as its matches come: what stands between them is a part that matches not.
class Cutter {
 public:
  Cutter(TextPiece piece, SplitBehavior behavior, bool invert, const PreTokenizer::Emit& emit)
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
  const PreTokenizer::Emit& emit_;
  std::size_t done_ = 0, begin_ = 0, end_ = 0;
  bool open_ = false, previous_ = false;
};

class Split : public PreTokenizer {
 public:
  Split(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void split(TextPiece piece, Scratch& scratch, RegexScratch& regex, const Emit& emit) const override {
    Cutter cutter(piece, behavior_, invert_, emit);
    Regex::Match match;
    const std::string_view seen = with_stand_ins(piece.text, scratch.text);
    for (RegexMatches matches(pattern_, regex, seen); matches.next(match);) cutter.match(match.begin, match.end);
    cutter.finish();
  }
  const Regex* cutting_pattern() const override {
    return behavior_ == SplitBehavior::isolated && pattern_.forward() ? &pattern_ : nullptr;
  }

 private:
  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class SplitText : public PreTokenizer {
 public:
  SplitText(std::string text, SplitBehavior behavior, bool invert)
      : text_(std::move(text)), behavior_(behavior), invert_(invert) {}
  void split(TextPiece piece, Scratch&, RegexScratch&, const Emit& emit) const override {
    Cutter cutter(piece, behavior_, invert_, emit);
    for (std::size_t at = piece.text.find(text_); at != std::string_view::npos;
         at = piece.text.find(text_, at + text_.size()))
      cutter.match(at, at + text_.size());
    cutter.finish();
  }

 private:
  std::string text_;
  SplitBehavior behavior_;
  bool invert_;
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

class SplitCharacters : public PreTokenizer {
 public:
  SplitCharacters(CharacterKind kind, SplitBehavior behavior) : kind_(kind), behavior_(behavior) {}
  void split(TextPiece piece, Scratch&, RegexScratch&, const Emit& emit) const override {
    Cutter cutter(piece, behavior_, false, emit);
    for (std::size_t at = 0; at < piece.text.size();) {
      const Decoded c = decode_valid(piece.text, at);
      if (is_of(kind_, c.code)) cutter.match(at, at + c.bytes);
      at += c.bytes;
    }
    cutter.finish();
  }
  // Behind a match, where no piece goes on.
  std::size_t cut_behind(std::string_view text, std::size_t from) const override {
    if (behavior_ != SplitBehavior::removed && behavior_ != SplitBehavior::isolated) return text.size();
    while (from > 0 && from < text.size() && (static_cast<std::uint8_t>(text[from]) & 0xC0) == 0x80) --from;
    while (from < text.size()) {
      const Decoded c = decode_valid(text, from);
      from += c.bytes;
      if (is_of(kind_, c.code)) break;
    }
    return from;
  }

 private:
  CharacterKind kind_;
  SplitBehavior behavior_;
};

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
  void split(TextPiece piece, Scratch& scratch, RegexScratch&, const Emit& emit) const override {
    std::string& text = scratch.text;
    text.clear();
    const bool begins = piece.text.starts_with(' ') || piece.text.starts_with(replacement_);
    const bool wanted = scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && piece.first);
    if (wanted && !begins) text += replacement_;
    for (const char byte : piece.text) byte == ' ' ? void(text += replacement_) : text.push_back(byte);
    if (!split_) return emit({text, piece.first});
    Cutter cutter({text, piece.first}, SplitBehavior::merged_with_next, false, emit);
    for (std::size_t at = text.find(replacement_); at != std::string::npos;
         at = text.find(replacement_, at + replacement_.size()))
      cutter.match(at, at + replacement_.size());
    cutter.finish();
  }
  bool keeps_whole() const override { return !split_; }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class PrefixSpace : public PreTokenizer {
 public:
  void split(TextPiece piece, Scratch& scratch, RegexScratch&, const Emit& emit) const override {
    if (piece.text.starts_with(' ')) return emit(piece);
    scratch.text.assign(1, ' ').append(piece.text);
    emit({scratch.text, piece.first});
  }
};

class ByteAlphabet : public PreTokenizer {
 public:
  void split(TextPiece piece, Scratch& scratch, RegexScratch&, const Emit& emit) const override {
    scratch.text = to_byte_alphabet(piece.text);
    emit({scratch.text, piece.first});
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> make_split(Regex pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}
std::unique_ptr<PreTokenizer> make_split_text(const std::string& text, SplitBehavior behavior, bool invert) {
  return std::make_unique<SplitText>(text, behavior, invert);
}
std::unique_ptr<PreTokenizer> make_split_characters(CharacterKind kind, SplitBehavior behavior) {
  return std::make_unique<SplitCharacters>(kind, behavior);
}
std::unique_ptr<PreTokenizer> make_metaspace(const std::string& replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(replacement, scheme, split);
}
std::unique_ptr<PreTokenizer> make_prefix_space() {
  return std::make_unique<PrefixSpace>();
}
std::unique_ptr<PreTokenizer> make_byte_alphabet() {
  return std::make_unique<ByteAlphabet>();
}

}  // namespace forge
