#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace forge {

// Whose rules a pattern is written by.
enum class RegexDialect {
  oniguruma,  // tokenizer.json: the crate onig, Oniguruma's own syntax
  rust,       // tiktoken: the crates regex and fancy-regex
};

// The pattern as PCRE2 reads it.
struct TranslatedPattern {
  std::string text;
  // A match depends on nothing before its start: no look-behind, no anchor, no word boundary.
  bool forward = true;
};

// Rewrites the parts of a pattern that the dialects and PCRE2 with UCP read differently: \s, \w, \h, \v, \b, \u,
// classes in classes and their intersections, (?m), names of properties, x{n}+ and x{n}?. Throws BadInput that names
// `where` and the unknown part.
TranslatedPattern translate_pattern(std::string_view pattern, RegexDialect dialect, const std::string& where);

// A thread's workspace for matching with any regex.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

// A compiled pattern over valid UTF-8.
class Regex {
 public:
  // `where` names the file and the part. BadInput: it doesn't compile.
  Regex(std::string_view pattern, RegexDialect dialect, const std::string& where);

  struct Match {
    std::size_t begin, end;
  };
  // The first match at or behind `from`. False: there is none.
  bool find(RegexScratch& scratch, std::string_view text, std::size_t from, Match& match) const;
  bool forward() const { return forward_; }
  static bool compiles(const std::string& translated);

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string where_;
  bool forward_ = true;
};

// All matches in order, as the crates' iterators have them: an empty one right behind the last match doesn't count.
class RegexMatches {
 public:
  RegexMatches(const Regex& regex, RegexScratch& scratch, std::string_view text, std::size_t from = 0)
      : regex_(regex), scratch_(scratch), text_(text), at_(from) {}
  bool next(Regex::Match& match);

 private:
  const Regex& regex_;
  RegexScratch& scratch_;
  std::string_view text_;
  std::size_t at_, last_end_ = static_cast<std::size_t>(-1);
};

}  // namespace forge
