#include "tokenizer/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "config/text.hpp"
#include "core/error.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

constexpr std::size_t most_pattern_bytes = 1 << 16;
// Of the stack of compiled code, and of the heap of the interpreter that takes over where the stack ends.
constexpr std::size_t stack_bytes = 32 << 10, most_stack_bytes = 64 << 20;
constexpr std::uint32_t most_heap_kib = 4 << 20;
constexpr std::uint32_t most_backtracking = 100'000'000;
// Processor time that matches in one text may take: much more than any pattern needs whose time grows as the text. It
// is looked at behind so many matches.
constexpr double least_seconds = 2, seconds_a_byte = 4e-6;
constexpr std::uint32_t matches_a_look = 512;
constexpr std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C;

struct CompileContext {
  CompileContext() : context(pcre2_compile_context_create(nullptr)) {
    require(context != nullptr, "pcre2_compile_context_create");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 100);
  }
  ~CompileContext() { pcre2_compile_context_free(context); }
  CompileContext(const CompileContext&) = delete;
  CompileContext& operator=(const CompileContext&) = delete;
  pcre2_compile_context* context;
};

double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

pcre2_code* compile(const std::string& text, std::uint32_t more, int& error, std::size_t& offset) {
  const CompileContext context;
  return pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options | more, &error, &offset,
                       context.context);
}

}  // namespace

struct RegexScratch::State {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(stack_bytes, most_stack_bytes, nullptr);
  // Of the patterns that take turns, each with the text that it is in.
  struct Spent {
    const void* pattern;
    const char* text;
    std::size_t size, from;
    std::uint32_t matches;
    double start;
  };
  std::vector<Spent> spent;

  // Counts a match. False: those in this text have taken too long.
  bool goes_on(const void* pattern, std::string_view text, std::size_t from) {
    auto at = std::find_if(spent.begin(), spent.end(), [&](const Spent& s) { return s.pattern == pattern; });
    if (at == spent.end()) at = spent.insert(at, {pattern, nullptr, 0, 0, 0, 0});
    // Another text may stand where the last one stood.
    if (at->text != text.data() || at->size != text.size() || from < at->from || from == 0)
      *at = {pattern, text.data(), text.size(), from, 0, 0};
    at->from = from;
    if (++at->matches % matches_a_look != 0) return true;
    const double now = thread_seconds();
    if (at->matches == matches_a_look) at->start = now;
    return now - at->start < least_seconds + seconds_a_byte * static_cast<double>(text.size());
  }
  State() {
    require(match && context, "no memory for regular expressions");
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, most_backtracking);
    pcre2_set_heap_limit(context, most_heap_kib);
  }
  ~State() {
    if (stack) pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {}
RegexScratch::~RegexScratch() = default;

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool fast = false;  // there is machine code of it
  Code() = default;
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

Regex::Regex(std::string_view pattern, RegexDialect dialect, const std::string& where) : where_(where) {
  if (pattern.size() > most_pattern_bytes)
    throw BadInput(where + ": a pattern of " + std::to_string(pattern.size()) + " bytes; legal: at most " +
                   std::to_string(most_pattern_bytes));
  const TranslatedPattern translated = translate_pattern(pattern, dialect, where);
  forward_ = translated.forward;
  auto made = std::make_shared<Code>();
  int error = 0;
  std::size_t offset = 0;
  made->code = compile(translated.text, dialect == RegexDialect::oniguruma ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY,
                       error, offset);
  if (!made->code)
    throw BadInput(where + ": the pattern " + shown(std::string(pattern)) + " is not available: " + message_of(error) +
                   " (PCRE2, at byte " + std::to_string(offset) + " of " + shown(translated.text) + ")");
  made->fast = pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::move(made);
}

bool Regex::compiles(const std::string& translated) {
  int error = 0;
  std::size_t offset = 0;
  pcre2_code* code = compile(translated, 0, error, offset);
  pcre2_code_free(code);
  return code != nullptr;
}

bool Regex::find(RegexScratch& scratch, std::string_view text, std::size_t from, Match& match) const {
  RegexScratch::State& state = *scratch.state_;
  if (!state.goes_on(code_.get(), text, from))
    throw BadInput(where_ + ": its pattern takes more than " +
                   std::to_string(static_cast<int>(least_seconds + seconds_a_byte * static_cast<double>(text.size()))) +
                   " s in a text of " + std::to_string(text.size()) + " bytes, of which it has done " +
                   std::to_string(from) +
                   ": its time grows faster than the text; legal: a pattern that looks only so far ahead");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int count = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->fast) count = pcre2_jit_match(code_->code, subject, text.size(), from, 0, state.match, state.context);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT)
    count = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.match,
                        state.context);
  if (count == PCRE2_ERROR_NOMATCH) return false;
  if (count < 0)
    throw BadInput(where_ + ": its pattern fails on a text of " + std::to_string(text.size()) + " bytes, at byte " +
                   std::to_string(from) + ": " + message_of(count));
  const std::size_t* ends = pcre2_get_ovector_pointer(state.match);
  match = {ends[0], ends[1]};
  if (match.end < match.begin) match.begin = match.end;  // \K in a look-ahead
  return true;
}

bool RegexMatches::next(Regex::Match& match) {
  while (at_ <= text_.size() && regex_.find(scratch_, text_, at_, match)) {
    at_ = match.end;
    if (match.begin == match.end && match.end == last_end_) {
      // Past one character.
      ++at_;
      while (at_ < text_.size() && continues_character(text_[at_])) ++at_;
      continue;
    }
    last_end_ = match.end;
    return true;
  }
  return false;
}

}  // namespace forge
