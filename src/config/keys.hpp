#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/deck.hpp"

namespace forge {

// The one table of the deck's keys. Reader, writer, help and docs/inputs.md all come from it. A key's default is its
// value in a default-constructed Deck: it stands nowhere else.

// How a value of type T is read from and put into a Deck.
template <class T>
struct ValueAccess {
  T (*get)(const Deck&);
  void (*set)(Deck&, T);
};

struct IntegerKey {
  ValueAccess<std::int64_t> access;
  std::int64_t least, most;  // inclusive
};

struct NumberKey {
  ValueAccess<double> access;
  double least, most;  // most may be infinity
  bool above = false;  // the value must be greater than `least`, not equal
  bool below = false;  // the value must be less than `most`, not equal
};

template <class T>
struct PlainKey {
  ValueAccess<T> access;
};
using UnsignedKey = PlainKey<std::uint64_t>;
using FlagKey = PlainKey<bool>;
using TextKey = PlainKey<std::string>;
using PathsKey = PlainKey<std::vector<std::string>>;
struct TextsKey : PlainKey<std::vector<std::string>> {};
// A file or directory; relative paths start at the working directory.
struct PathKey {
  ValueAccess<std::string> access;
};
// Distinct integers of a range, in ascending order.
struct IntegersKey {
  ValueAccess<std::vector<std::int64_t>> access;
  std::int64_t least, most;  // inclusive
};

// Numbers, in any order.
struct NumbersKey {
  ValueAccess<std::vector<double>> access;
  double least;  // exclusive
};

// Ascending ranges of integers (config/ranges.hpp).
struct RangesKey {
  ValueAccess<std::vector<NumberRange>> access;
  std::int64_t least, most;  // inclusive
};

// One of several words; the value is the word's index, which is the enumerator's.
struct ChoiceKey {
  ValueAccess<int> access;
  std::vector<std::string> words;
};

// A set of names, or a word for one; the value has a bit for each name, and words may have others.
struct SetKey {
  ValueAccess<unsigned> access;
  std::vector<std::pair<std::string, unsigned>> words;
  std::vector<std::string> names;
};

// A list of maps (config/map_list.hpp).
template <class T>
struct ListKey {
  ValueAccess<std::vector<T>> access;
};
using SourcesKey = ListKey<SourceDeck>;
using PhasesKey = ListKey<PhaseDeck>;
using ValidationKey = ListKey<ValidationDeck>;
using RampKey = ListKey<RampDeck>;
using GroupsKey = ListKey<OptimizerGroup>;

// When a deck must give a key.
enum class Required {
  never,
  dimension,  // always, unless model.hf is given
  training,   // by verbs that train
  files,      // by those, unless data.sources is given
};

// Whether a run that goes on from a checkpoint may have another value than the checkpoint: keys of where and how fast
// it goes on may change, keys of its arithmetic stay.
enum class OnRestart { may_change, stays };

struct Key {
  std::string section, name;
  OnRestart on_restart;
  std::string unit;  // "" = none, or it is in the name
  std::string doc;
  Required required = Required::never;
  std::variant<IntegerKey, UnsignedKey, NumberKey, FlagKey, TextKey, PathKey, PathsKey, TextsKey, IntegersKey,
               NumbersKey, RangesKey, ChoiceKey, SetKey, SourcesKey, PhasesKey, ValidationKey, RampKey, GroupsKey>
      kind;

  std::string qualified() const { return section + "." + name; }
};

struct SectionInfo {
  std::string name;
  std::string doc;
};

// In the order of help, of docs/inputs.md and of resolved decks.
const std::vector<SectionInfo>& all_sections();
bool is_section(const std::string& name);
const std::vector<Key>& all_keys();

// nullptr when there is none.
const Key* find_key(const std::string& section, const std::string& name);

// The legal values of a key: "integer, 1 ... 10000", "fp64 | fp32 | bf16", "path".
std::string legal_values(const Key& key);
// The default as YAML: "0.02", "[]", "1f1b".
std::string default_text(const Key& key);
// The value of a key as YAML; texts are quoted where YAML needs it.
std::string value_text(const Key& key, const Deck& deck);
// The part of the value that a restart compares: the value as YAML, without the paths of a mixture's files.
std::string compared_text(const Key& key, const Deck& deck);
// "" when the deck's value of the key is legal by itself, else "= 0: legal: ...". A default outside the range (a
// dimension of 0 before model.hf is read) passes, unless the value is needed.
std::string range_problem(const Key& key, const Deck& deck, bool needed = false);
bool is_default(const Key& key, const Deck& deck);
// A set as a deck has it: "selective", "[norms, activations]".
std::string set_text(const SetKey& key, unsigned set);
std::vector<std::string> set_names(const SetKey& key, unsigned set);

}  // namespace forge
