#pragma once

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "config/keys.hpp"

namespace forge {

// Builds the table's entries of one section; `Section` is the section's member of Deck, or gives it. For keys_*.cpp
// alone. Every entry has its rule for restarts: without one it doesn't compile.
template <auto Section>
class SectionKeys {
 public:
  SectionKeys(std::string name, std::vector<Key>& keys) : name_(std::move(name)), keys_(keys) {}

  template <auto Member>
  Key& integer(const char* name, OnRestart rule, std::int64_t least, std::int64_t most, const char* unit,
               const char* doc) {
    return add(name, rule, unit, doc, IntegerKey{access<Member, std::int64_t>(), least, most});
  }
  template <auto Member>
  Key& unsigned_integer(const char* name, OnRestart rule, const char* doc) {
    return add(name, rule, "", doc, UnsignedKey{access<Member, std::uint64_t>()});
  }
  template <auto Member>
  Key& number(const char* name, OnRestart rule, NumberKey range, const char* doc) {
    range.access = access<Member, double>();
    return add(name, rule, "", doc, range);
  }
  template <auto Member>
  Key& flag(const char* name, OnRestart rule, const char* doc) {
    return add(name, rule, "", doc, FlagKey{access<Member, bool>()});
  }
  template <auto Member>
  Key& text(const char* name, OnRestart rule, const char* doc) {
    return add(name, rule, "", doc, TextKey{access<Member, std::string>()});
  }
  template <auto Member>
  Key& path(const char* name, OnRestart rule, const char* doc) {
    return add(name, rule, "", doc, PathKey{access<Member, std::string>()});
  }
  template <auto Member>
  Key& paths(const char* name, OnRestart rule, const char* doc) {
    return add(name, rule, "", doc, PathsKey{access<Member, std::vector<std::string>>()});
  }
  template <auto Member>
  Key& texts(const char* name, OnRestart rule, const char* doc) {
    return add(name, rule, "", doc, TextsKey{{access<Member, std::vector<std::string>>()}});
  }
  template <auto Member>
  Key& integers(const char* name, OnRestart rule, std::int64_t least, std::int64_t most, const char* doc) {
    return add(name, rule, "", doc, IntegersKey{access<Member, std::vector<std::int64_t>>(), least, most});
  }
  template <auto Member>
  Key& numbers(const char* name, OnRestart rule, double above, const char* doc) {
    return add(name, rule, "", doc, NumbersKey{access<Member, std::vector<double>>(), above});
  }
  template <auto Member>
  Key& ranges(const char* name, OnRestart rule, std::int64_t least, std::int64_t most, const char* doc) {
    return add(name, rule, "", doc, RangesKey{access<Member, std::vector<NumberRange>>(), least, most});
  }
  template <auto Member>
  Key& maps(const char* name, OnRestart rule, const char* doc) {
    using T = typename std::remove_cvref_t<decltype(std::invoke(Section, std::declval<Deck&>()).*Member)>::value_type;
    return add(name, rule, "", doc, ListKey<T>{access<Member, std::vector<T>>()});
  }
  // `words` in the order of the enumerators.
  template <auto Member>
  Key& choice(const char* name, OnRestart rule, std::vector<std::string> words, const char* doc) {
    using Enum = std::remove_cvref_t<decltype(std::invoke(Section, std::declval<Deck&>()).*Member)>;
    const ValueAccess<int> as_index{[](const Deck& d) { return static_cast<int>(std::invoke(Section, d).*Member); },
                                    [](Deck& d, int i) { std::invoke(Section, d).*Member = static_cast<Enum>(i); }};
    return add(name, rule, "", doc, ChoiceKey{as_index, std::move(words)});
  }
  // `Member` has the set as its `parts`.
  template <auto Member>
  Key& set(const char* name, OnRestart rule, SetKey words, const char* doc) {
    words.access = {[](const Deck& d) { return (std::invoke(Section, d).*Member).parts; },
                    [](Deck& d, unsigned value) { (std::invoke(Section, d).*Member).parts = value; }};
    return add(name, rule, "", doc, std::move(words));
  }
  Key& add(const char* name, OnRestart rule, const char* unit, const char* doc, decltype(Key::kind) kind) {
    keys_.push_back(Key{name_, name, rule, unit, doc, Required::never, std::move(kind)});
    return keys_.back();
  }

 private:
  template <auto Member, class T>
  static ValueAccess<T> access() {
    return {[](const Deck& d) -> T { return std::invoke(Section, d).*Member; },
            [](Deck& d, T value) { std::invoke(Section, d).*Member = std::move(value); }};
  }

  std::string name_;
  std::vector<Key>& keys_;
};

// Ranges of number keys.
inline NumberKey at_least(double least) {
  return {{}, least, std::numeric_limits<double>::infinity()};
}
inline NumberKey more_than(double least) {
  return {{}, least, std::numeric_limits<double>::infinity(), true};
}
inline NumberKey from_below(double least, double most) {
  return {{}, least, most, false, true};
}

void add_model_keys(std::vector<Key>& keys);
// Parts of the model section.
void add_latent_attention_keys(SectionKeys<&Deck::model>& k);
void add_linear_attention_keys(SectionKeys<&Deck::model>& k);
void add_expert_keys(SectionKeys<&Deck::model>& k);
void add_recompute_keys(SectionKeys<&Deck::train>& k);
void add_tuning_keys(std::vector<Key>& keys);  // the adapter and preference sections
void add_run_keys(std::vector<Key>& keys);     // every other section

}  // namespace forge
