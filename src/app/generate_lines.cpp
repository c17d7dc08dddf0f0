#include "app/generate_lines.hpp"

#include <algorithm>

#include "app/line_ids.hpp"
#include "core/error.hpp"

namespace forge {

namespace {

using nlohmann::json;

// Members of a line, each for an option.
class Members {
 public:
  Members(const json& line, const std::string& place) : line_(line), place_(place) {}

  std::int64_t whole(const char* name, std::int64_t otherwise, std::int64_t least) const {
    const json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_number_integer() || *value < least || *value > most_whole)
      refuse(name, *value, "a whole number from " + std::to_string(least));
    return value->get<std::int64_t>();
  }
  double temperature(double otherwise) const {
    const double value = number("temperature", otherwise);
    if (!(value >= 0)) refuse("temperature", *find("temperature"), "a number from 0");
    return value;
  }
  double top_p(double otherwise) const {
    const double value = number("top_p", otherwise);
    if (!(value > 0 && value <= 1)) refuse("top_p", *find("top_p"), "a number above 0 and at most 1");
    return value;
  }
  std::vector<std::string> stop(const std::vector<std::string>& otherwise) const {
    const json* value = find("stop");
    if (!value) return otherwise;
    std::vector<std::string> texts;
    const auto add = [&](const json& text) {
      if (!text.is_string() || text.get<std::string>().empty())
        refuse("stop", *value, "a text that isn't empty, or a list of such texts");
      texts.push_back(text.get<std::string>());
    };
    if (value->is_array())
      for (const json& text : *value) add(text);
    else
      add(*value);
    return texts;
  }

 private:
  static constexpr std::int64_t most_whole = std::int64_t{1} << 53;
  const json* find(const char* name) const {
    const auto at = line_.find(name);
    return at == line_.end() || at->is_null() ? nullptr : &*at;
  }
  double number(const char* name, double otherwise) const {
    const json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_number()) refuse(name, *value, "a number");
    return value->get<double>();
  }
  [[noreturn]] void refuse(const char* name, const json& value, const std::string& legal) const {
    throw BadInput(place_ + ": " + name + " is " + shown_json(value) + "; legal: " + legal);
  }

  const json& line_;
  const std::string& place_;
};

}  // namespace

GenerateLines::GenerateLines(const CommandLine& line, const ModelText& text, const Deck& deck)
    : line_(line), text_(text), vocabulary_(deck.model.vocabulary), tokens_(deck.train.sequence_tokens) {}

GenerateLine GenerateLines::read(std::string_view line, const std::string& place) const {
  const json parsed = parse_json(std::string(line), place, line_limits);
  const auto prompt = parsed.find("prompt");
  if (prompt == parsed.end())
    throw BadInput(place + R"(: has no prompt; legal: {"prompt": …}, a text or a list of ids)");
  const Members members(parsed, place);
  GenerateLine result;
  result.length = members.whole("length", line_.length, 1);
  if (result.length >= tokens_)
    throw BadInput(place + ": length is " + std::to_string(result.length) +
                   ", for which train.sequence_tokens = " + std::to_string(tokens_) + " has no room; legal: at most " +
                   std::to_string(tokens_ - 1) + ", one less than prompt and text together");
  result.options.temperature = members.temperature(line_.temperature);
  result.options.top_k = members.whole("top_k", line_.top_k, 0);
  result.options.top_p = members.top_p(line_.top_p);
  result.options.seed =
      static_cast<std::uint64_t>(members.whole("seed", static_cast<std::int64_t>(line_.sampling_seed), 0));
  if (!line_.ignore_end) result.options.ends = text_.ends();
  result.stop = members.stop(line_.stop);
  if (!result.stop.empty() && !text_.known())
    throw BadInput(place +
                   ": stop, but no tokenizer is known, so that tokens have no text; legal: model.tokenizer or "
                   "--tokenizer");
  result.prompt = ids_of_member(*prompt, "prompt", text_, vocabulary_, place);
  if (result.prompt.empty()) result.prompt.push_back(token_before_text(text_, place, "prompt"));
  result.left_out = std::max<std::int64_t>(0, std::ssize(result.prompt) + result.length - tokens_);
  result.prompt.erase(result.prompt.begin(), result.prompt.begin() + result.left_out);
  return result;
}

}  // namespace forge
