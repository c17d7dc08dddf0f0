#include "config/keys.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "config/batch_ramp.hpp"
#include "config/key_builder.hpp"
#include "config/mixture_keys.hpp"
#include "config/ranges.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/json.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

std::vector<Key> make_keys() {
  std::vector<Key> keys;
  add_model_keys(keys);
  add_run_keys(keys);
  return keys;
}

std::string choice_text(const ChoiceKey& key, int index) {
  return index >= 0 && index < static_cast<int>(key.words.size()) ? key.words[to_size(index)] : "?";
}

std::string range_text(const NumberKey& key) {
  const std::string least = (key.above ? "> " : ">= ") + format_exact(key.least);
  if (std::isinf(key.most)) return least;
  return least + " and " + (key.below ? "< " : "<= ") + format_exact(key.most);
}

template <class IntegerRange>
std::string integer_range(const IntegerRange& key) {
  return std::to_string(key.least) + " to " + std::to_string(key.most);
}

bool in_range(const NumberKey& key, double x) {
  return std::isfinite(x) && (key.above ? x > key.least : x >= key.least) && (key.below ? x < key.most : x <= key.most);
}

// A value in a message: a list can be as long as a deck.
std::string at_most(const std::string& text) {
  constexpr std::size_t most = 200;
  return text.size() > most ? text.substr(0, most) + "..." : text;
}

std::string numbers_text(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + format_exact(value);
  return "[" + text + "]";
}

}  // namespace

std::string text_problem(const std::string& text, bool path) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0 || (path && (byte < 0x20 || byte == 0x7f)))
      return std::string("= ") + shown(text) + ": must not hold a " + (path ? "control" : "zero") + " character";
  }
  return "";
}

const std::vector<SectionInfo>& all_sections() {
  static const std::vector<SectionInfo> sections = {
      {"model", "The model: a Hugging Face directory, or its dimensions."},
      {"mesh", "How many ranks each parallel axis has; the world size is pp x dp_replicate x dp_shard x cp x tp."},
      {"schedule", "The order of a step's microbatches."},
      {"train", "Number of steps, batches and arithmetic."},
      {"adapter", "Low-rank matrices beside the model's own, which alone are trained (LoRA)."},
      {"preference", "Training on pairs of a preferred and another text (DPO)."},
      {"optimizer", "The update of the parameters and its learning rate."},
      {"data", "Token files."},
      {"checkpoint", "Restart files (docs/checkpoint.md). Without a directory nothing is saved."},
      {"output", "The files of a run."},
      {"machine", "The computer."},
  };
  return sections;
}

bool is_section(const std::string& name) {
  const auto& sections = all_sections();
  return std::any_of(sections.begin(), sections.end(), [&](const SectionInfo& s) { return s.name == name; });
}

const std::vector<Key>& all_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

const Key* find_key(const std::string& section, const std::string& name) {
  static const std::unordered_map<std::string, const Key*> known = [] {
    std::unordered_map<std::string, const Key*> names;
    for (const auto& key : all_keys()) names.emplace(key.qualified(), &key);
    return names;
  }();
  const auto found = known.find(section + "." + name);
  return found == known.end() ? nullptr : found->second;
}

std::string legal_values(const Key& key) {
  return std::visit(Overloaded{
                        [](const IntegerKey& k) { return "integer, " + integer_range(k); },
                        [](const UnsignedKey&) { return std::string("integer, 0 to 18446744073709551615"); },
                        [](const NumberKey& k) { return "number, " + range_text(k); },
                        [](const FlagKey&) { return std::string("true | false"); },
                        [](const TextKey&) { return std::string("text"); },
                        [](const PathKey&) { return std::string("path"); },
                        [](const PathsKey&) { return std::string("list of paths"); },
                        [](const TextsKey&) { return std::string("list of texts"); },
                        [](const IntegersKey& k) { return "list of ascending integers, " + integer_range(k); },
                        [](const NumbersKey& k) { return "list of numbers, > " + format_exact(k.least); },
                        [](const RangesKey& k) { return legal_ranges(k.least, k.most); },
                        []<class T>(const ListKey<T>&) { return legal_list(std::vector<T>()); },
                        [](const ChoiceKey& k) {
                          std::string text;
                          for (const auto& word : k.words) text += (text.empty() ? "" : " | ") + word;
                          return text;
                        },
                        [](const SetKey& k) {
                          std::string text;
                          for (const auto& [word, set] : k.words) text += word + " | ";
                          return text + "list of " + joined(k.names);
                        },
                    },
                    key.kind);
}

std::vector<std::string> set_names(const SetKey& key, unsigned set) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < key.names.size(); ++i)
    if (set >> i & 1) names.push_back(key.names[i]);
  return names;
}

std::string set_text(const SetKey& key, unsigned set) {
  for (const auto& [word, of_word] : key.words)
    if (of_word == set) return word;
  return "[" + joined(set_names(key, set)) + "]";
}

std::string default_text(const Key& key) {
  return value_text(key, Deck{});
}

std::string value_text(const Key& key, const Deck& deck) {
  return std::visit(Overloaded{
                        [&](const IntegerKey& k) { return std::to_string(k.access.get(deck)); },
                        [&](const UnsignedKey& k) { return std::to_string(k.access.get(deck)); },
                        [&](const NumberKey& k) { return format_exact(k.access.get(deck)); },
                        [&](const FlagKey& k) { return std::string(k.access.get(deck) ? "true" : "false"); },
                        [&](const TextKey& k) { return yaml_text(k.access.get(deck)); },
                        [&](const PathKey& k) { return yaml_text(k.access.get(deck)); },
                        [&](const PathsKey& k) { return paths_text(k.access.get(deck)); },
                        [&](const TextsKey& k) { return paths_text(k.access.get(deck)); },
                        [&](const IntegersKey& k) { return json_of(k.access.get(deck)); },
                        [&](const NumbersKey& k) { return numbers_text(k.access.get(deck)); },
                        [&](const RangesKey& k) { return "[" + ranges_text(k.access.get(deck)) + "]"; },
                        [&](const ChoiceKey& k) { return choice_text(k, k.access.get(deck)); },
                        [&](const SetKey& k) { return set_text(k, k.access.get(deck)); },
                        [&]<class T>(const ListKey<T>& k) { return list_text(k.access.get(deck)); },
                    },
                    key.kind);
}

std::string compared_text(const Key& key, const Deck& deck) {
  const auto* sources = std::get_if<SourcesKey>(&key.kind);
  return sources ? list_text(sources->access.get(deck), false) : value_text(key, deck);
}

std::string range_problem(const Key& key, const Deck& deck, bool needed) {
  if (!needed && is_default(key, deck)) return "";
  const auto must_be = [&](bool holds) {
    return holds ? std::string() : "= " + at_most(value_text(key, deck)) + ": legal: " + legal_values(key);
  };
  return std::visit(
      Overloaded{
          [&](const IntegerKey& k) { return must_be(k.access.get(deck) >= k.least && k.access.get(deck) <= k.most); },
          [&](const UnsignedKey&) { return std::string(); },
          [&](const NumberKey& k) { return must_be(in_range(k, k.access.get(deck))); },
          [&](const FlagKey&) { return std::string(); },
          [&](const TextKey& k) { return text_problem(k.access.get(deck), false); },
          [&](const PathKey& k) {
            return needed && k.access.get(deck).empty() ? "= \"\": legal: a path"
                                                        : text_problem(k.access.get(deck), true);
          },
          [&](const PathsKey& k) {
            if (needed && k.access.get(deck).empty()) return std::string("= []: legal: at least one path");
            return items_problem(k.access.get(deck), "path");
          },
          [&](const TextsKey& k) { return items_problem(k.access.get(deck), "text"); },
          [&](const IntegersKey& k) {
            const std::vector<std::int64_t> values = k.access.get(deck);
            return must_be(std::is_sorted(values.begin(), values.end(), std::less_equal<>()) &&
                           (values.empty() || (values.front() >= k.least && values.back() <= k.most)));
          },
          [&](const NumbersKey& k) {
            const std::vector<double> values = k.access.get(deck);
            return must_be(std::all_of(values.begin(), values.end(), [&](double value) { return value > k.least; }));
          },
          [&](const RangesKey& k) { return ranges_problem(k.access.get(deck), k.least, k.most); },
          [&]<class T>(const ListKey<T>& k) { return list_problem(k.access.get(deck)); },
          [&](const ChoiceKey& k) {
            const int index = k.access.get(deck);
            return must_be(index >= 0 && index < static_cast<int>(k.words.size()));
          },
          [&](const SetKey&) { return std::string(); },
      },
      key.kind);
}

bool is_default(const Key& key, const Deck& deck) {
  const Deck standard;
  return std::visit([&](const auto& k) { return k.access.get(deck) == k.access.get(standard); }, key.kind);
}

}  // namespace forge
