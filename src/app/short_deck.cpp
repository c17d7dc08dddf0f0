#include "app/short_deck.hpp"

#include <vector>

#include "config/keys.hpp"
#include "config/read.hpp"
#include "config/write_deck.hpp"
#include "core/error.hpp"
#include "schedule/check_deck.hpp"

namespace forge {

namespace {

std::string text_of(const Deck& deck, const std::vector<const Key*>& keys) {
  std::string text, section;
  for (const Key* key : keys) {
    if (key->section != section) text += key->section + ":\n";
    section = key->section;
    text += "  " + key->name + ": " + value_text(*key, deck) + "\n";
  }
  return text;
}

// Whether the text is a deck that resolves to `resolved`.
bool resolves_to(const std::string& text, const std::string& resolved, int ranks) {
  try {
    Deck deck = read_deck(text, "deck", {}, Needs::training);
    check_deck(deck, ranks);
    return write_deck(deck) == resolved;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string short_deck(const Deck& deck, int ranks) {
  const std::string resolved = write_deck(deck);
  std::vector<const Key*> kept;
  for (const Key& key : all_keys())
    if (!is_default(key, deck)) kept.push_back(&key);
  // In the table's order a section's keys stand together. What follows from others comes behind them.
  for (std::size_t i = kept.size(); i-- > 0;) {
    if (kept[i]->section == "mesh") continue;  // a layout stays one, whatever the number of ranks
    std::vector<const Key*> fewer = kept;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (resolves_to(text_of(deck, fewer), resolved, ranks)) kept = std::move(fewer);
  }
  const std::string text = text_of(deck, kept);
  return resolves_to(text, resolved, ranks) ? text : resolved;
}

}  // namespace forge
