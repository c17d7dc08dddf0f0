#include "config/suggest.hpp"

#include <algorithm>
#include <vector>

#include "config/aliases.hpp"
#include "config/keys.hpp"
#include "config/text.hpp"

namespace forge {

namespace {

constexpr std::size_t most_letters = 64;  // of a name that is worth a comparison
constexpr std::size_t most_keys_listed = 12;

// The keys whose letters are these.
std::vector<std::string> keys_of_letters(const std::string& section, const std::string& letters) {
  std::vector<std::string> keys;
  for (const Key& key : all_keys())
    if ((section.empty() || key.section == section) && letters_of(key.name) == letters) keys.push_back(key.qualified());
  return keys;
}

std::string nearest_in(const std::string& section, const std::string& letters) {
  std::string best;
  std::size_t least = far_enough(letters) + 1;
  for (const Key& key : all_keys()) {
    if (!section.empty() && key.section != section) continue;
    const std::string own = letters_of(key.name);
    const std::size_t distance = edit_distance(letters, own);
    if (distance > 1 && own[0] != letters[0]) continue;  // another word
    if (distance < least) least = distance, best = key.qualified();
  }
  return best;
}

std::string help_name(const std::string& section) {
  return section == "train" ? "train." : section;  // a verb has the name, too
}

}  // namespace

std::string letters_of(const std::string& name) {
  std::string letters;
  for (const char c : name) {
    if (c == '_' || c == '-' || c == '.' || c == ' ') continue;
    letters += 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return letters;
}

std::size_t far_enough(const std::string& name) {
  if (name.size() <= 4) return 1;
  return std::max<std::size_t>(2, name.size() / 3 - (name.size() > 9 ? 1 : 0));
}

Suggestion suggest_key(const std::string& section, const std::string& name) {
  if (name.empty() || name.size() > most_letters) return {};
  const std::string letters = letters_of(name);
  if (letters.empty()) return {};
  if (const auto own = keys_of_letters(section, letters); !section.empty() && !own.empty())
    return {"nearest known key: " + own.front(), own.front()};
  if (const Alias* alias = alias_of_key(section, letters)) {
    const std::string meaning = alias->meaning, key = alias->key;
    if (key.empty()) return {meaning, ""};
    return {"forge calls it " + key + (meaning.empty() ? "" : " (" + meaning + ")"), key};
  }
  if (const auto elsewhere = keys_of_letters("", letters); !elsewhere.empty())
    return {(elsewhere.size() > 1 ? "nearest known keys: " : "nearest known key: ") + joined(elsewhere),
            elsewhere.size() > 1 ? "" : elsewhere.front()};
  if (const std::string near = nearest_in(section, letters); !near.empty()) return {"nearest known key: " + near, near};
  return {};
}

std::string suggest_section(const std::string& name) {
  if (name.empty() || name.size() > most_letters) return "";
  const std::string letters = letters_of(name);
  if (const Alias* alias = alias_of_section(letters)) {
    const std::string meaning = alias->meaning, section = alias->key;
    if (section.empty()) return meaning;
    return "forge calls it " + section + (meaning.empty() ? "" : " (" + meaning + ")");
  }
  std::string best;
  std::size_t least = far_enough(letters) + 1;
  for (const SectionInfo& section : all_sections()) {
    const std::size_t distance = edit_distance(letters, section.name);
    if (distance < least) least = distance, best = section.name;
  }
  return best.empty() ? "" : "nearest known section: " + best;
}

std::string keys_of_section(const std::string& section) {
  std::vector<std::string> names;
  for (const Key& key : all_keys())
    if (key.section == section) names.push_back(key.name);
  if (names.size() <= most_keys_listed) return "keys of " + section + ": " + joined(names);
  return "`forge help " + help_name(section) + "` lists its keys";
}

std::string help_suggestion(const std::string& name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos)
    if (const std::string section = suggest_section(name); !section.empty()) return "; " + section;
  const Suggestion key = suggest_key(dot == std::string::npos ? "" : name.substr(0, dot), name.substr(dot + 1));
  if (!key.text.empty()) return "; " + key.text;
  std::vector<std::string> names;
  for (const SectionInfo& section : all_sections()) names.push_back(section.name);
  return "; legal: keys, a verb (`forge help` lists them), a key, or a section: " + joined(names);
}

std::string key_named(const std::string& name, Naming naming) {
  const std::size_t dot = name.find('.');
  if (name.empty() || name.size() > most_letters) return "";
  const std::vector<std::string> keys = keys_of_letters(dot == std::string::npos ? "" : name.substr(0, dot),
                                                        letters_of(dot == std::string::npos ? name : name.substr(dot)));
  if (keys.size() == 1) return keys.front();
  if (!keys.empty() || naming == Naming::spelling) return "";
  return suggest_key(dot == std::string::npos ? "" : name.substr(0, dot), name.substr(dot + 1)).key;
}

}  // namespace forge
