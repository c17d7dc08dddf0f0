#include "tokenizer/bpe.hpp"

#include <algorithm>
#include <limits>

#include "config/text.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/word_cache.hpp"

namespace forge {

namespace {

// A frozen unit: no merge has such an id.
constexpr std::int32_t frozen_bit = 1 << 30;
// Units that are merged by looking at all pairs each time; more of them by a heap.
constexpr std::size_t most_short = 40;

std::size_t character_bytes(std::string_view text, std::size_t at, bool bytes) {
  return bytes ? 1 : decode_valid(text, at).bytes;
}

std::uint64_t code_at(std::string_view text, std::size_t at, bool bytes) {
  return bytes ? static_cast<std::uint8_t>(text[at]) : static_cast<std::uint64_t>(decode_valid(text, at).code);
}

}  // namespace

struct Bpe::Scratch : ModelScratch {
  WordCache whole, parts;
  std::vector<std::int32_t> units;
  std::vector<std::uint32_t> ranks;
  std::vector<std::int32_t> results;
  struct Link {
    std::int32_t id;
    std::int32_t previous, next;  // -1: none
  };
  std::vector<Link> links;
  std::vector<std::uint64_t> heap;  // rank · 2^32 + place, the least on top
};

Bpe::Bpe(TokenTable vocabulary, const std::vector<BpeMerge>& merges, const std::array<std::int32_t, 256>& byte_tokens,
         BpeOptions options, const std::vector<std::string>& frozen)
    : vocabulary_(std::move(vocabulary)),
      options_(std::move(options)),
      byte_tokens_(byte_tokens),
      joint_ascii_(1 << 16) {
  ascii_.fill(-1);
  std::int32_t largest = -1;
  std::vector<std::string_view> texts;
  for (const auto& [text, id] : vocabulary_) {
    largest = std::max(largest, id);
    most_token_bytes_ = std::max(most_token_bytes_, text.size());
    if (text.empty()) continue;
    if (text.size() == character_bytes(text, 0, options_.bytes)) {
      if (text.size() == 1)
        ascii_[static_cast<std::uint8_t>(text[0])] = id;
      else
        characters_.set(code_at(text, 0, false), id);
    }
  }
  texts.resize(to_size(largest + 1));
  for (const auto& [text, id] : vocabulary_) {
    texts[to_size(id)] = text;
    if (id < options_.first_virtual) continue;
    virtual_texts_.resize(std::max(virtual_texts_.size(), to_size(id - options_.first_virtual) + 1));
    virtual_texts_[to_size(id - options_.first_virtual)] = text;
  }
  std::vector<bool> is_byte_token(texts.size(), false);
  for (const auto id : byte_tokens_)
    if (id >= 0 && to_size(id) < texts.size()) is_byte_token[to_size(id)] = true;
  bool merges_bytes = false;
  for (const BpeMerge& merge : merges) {
    merges_.set(static_cast<std::uint64_t>(static_cast<std::uint32_t>(merge.left)) << 32 |
                    static_cast<std::uint32_t>(merge.right),
                {merge.rank, merge.result});
    add_joint(texts[to_size(merge.result)]);
    merges_bytes = merges_bytes || is_byte_token[to_size(merge.left)] || is_byte_token[to_size(merge.right)];
  }
  std::vector<std::pair<std::string_view, std::int32_t>> symbols;
  for (const std::string& text : frozen) symbols.emplace_back(text, vocabulary_.find(text));
  frozen_ = ByteTrie(std::move(symbols));
  for (const std::string& text : frozen) add_joint(text);
  cuts_ = options_.prefix.empty() && options_.suffix.empty();
  const bool all_bytes = std::all_of(byte_tokens_.begin(), byte_tokens_.end(), [](std::int32_t id) { return id >= 0; });
  cuts_unknown_ = options_.byte_fallback && all_bytes && !merges_bytes;
}

std::vector<BpeMerge> Bpe::merges_of_ranks(TokenTable& vocabulary, const std::vector<std::int64_t>& ranks, bool bytes,
                                           std::int32_t next_id) {
  std::vector<std::pair<std::string, std::int32_t>> tokens;
  for (const auto& [text, id] : vocabulary) tokens.emplace_back(text, id);
  if (!bytes)
    for (const auto& [text, id] : tokens)
      for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at, false))
        if (vocabulary.add(text.substr(at, character_bytes(text, at, false)), next_id)) ++next_id;
  std::vector<BpeMerge> merges;
  for (const auto& [text, id] : tokens) {
    if (ranks[to_size(id)] < 0) continue;
    for (std::size_t at = character_bytes(text, 0, bytes); at < text.size(); at += character_bytes(text, at, bytes)) {
      const std::int32_t left = vocabulary.find(std::string_view(text).substr(0, at));
      const std::int32_t right = left < 0 ? -1 : vocabulary.find(std::string_view(text).substr(at));
      if (right >= 0) merges.push_back({left, right, id, static_cast<std::uint32_t>(ranks[to_size(id)])});
    }
  }
  return merges;
}

void Bpe::add_joint(std::string_view text) {
  if (text.empty()) return;
  std::uint64_t left = code_at(text, 0, options_.bytes);
  for (std::size_t at = character_bytes(text, 0, options_.bytes); at < text.size();
       at += character_bytes(text, at, options_.bytes)) {
    const std::uint64_t right = code_at(text, at, options_.bytes);
    if (left < 256 && right < 256)
      joint_ascii_[left << 8 | right] = true;
    else
      joint_.insert(left << 32 | right, 1);
    left = right;
  }
}

bool Bpe::joins(std::uint64_t left, std::uint64_t right) const {
  if (left < 256 && right < 256) return joint_ascii_[left << 8 | right];
  return joint_.find(left << 32 | right) != nullptr;
}

std::unique_ptr<ModelScratch> Bpe::make_scratch() const {
  return std::make_unique<Scratch>();
}

std::int32_t Bpe::id_of_character(std::string_view character, char32_t code) const {
  if (character.size() == 1) return ascii_[static_cast<std::uint8_t>(character[0])];
  const std::int32_t* id = characters_.find(code);
  return id ? *id : -1;
}

// The end of the part that begins at `from`: where no token can lie over it. Known characters end a part, unknown ones
// only where they become bytes that nothing merges.
std::size_t Bpe::part_end(std::string_view piece, std::size_t from) const {
  const bool bytes = options_.bytes;
  std::size_t at = from + character_bytes(piece, from, bytes);
  std::uint64_t left = code_at(piece, from, bytes);
  const auto known = [&](std::size_t place, std::uint64_t code) {
    if (cuts_unknown_) return true;
    const std::int32_t id =
        id_of_character(piece.substr(place, character_bytes(piece, place, bytes)), static_cast<char32_t>(code));
    return id >= 0 && id < options_.first_virtual;
  };
  std::size_t left_at = from;
  while (at < piece.size()) {
    const std::uint64_t right = code_at(piece, at, bytes);
    if (!joins(left, right) && known(left_at, left) && known(at, right)) return at;
    left = right;
    left_at = at;
    at += character_bytes(piece, at, bytes);
  }
  return at;
}

std::size_t Bpe::cut_behind(std::string_view piece, std::size_t from) const {
  // A part that is a token by chance must not become it (ignore_merges).
  if (!cuts_ || options_.ignore_merges || from >= piece.size()) return piece.size();
  while (!options_.bytes && from > 0 && continues_character(piece[from])) --from;
  return part_end(piece, from);
}

void Bpe::encode(std::string_view piece, ModelScratch& scratch_base, std::vector<std::int32_t>& ids) const {
  auto& scratch = static_cast<Scratch&>(scratch_base);
  if (piece.empty()) return;
  const bool short_piece = WordCache::fits(piece);
  WordCache::Key key;
  if (short_piece) {
    key = WordCache::key_of(piece);
    if (scratch.whole.find(key, ids)) return;
  }
  const std::size_t before = ids.size();
  const std::int32_t whole = options_.ignore_merges && piece.size() <= most_token_bytes_ ? vocabulary_.find(piece) : -1;
  if (whole >= 0) {
    ids.push_back(whole);
  } else if (short_piece || !cuts_) {
    scratch.units.clear();
    add_units(piece, scratch.units);
    scratch.units.size() <= most_short ? merge_short(scratch) : merge_long(scratch);
    append_result(scratch.units, ids);
  } else {
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t end = part_end(piece, at);
      encode_part(piece.substr(at, end - at), scratch, ids);
      at = end;
    }
  }
  if (short_piece) scratch.whole.keep(key, ids.data() + before, ids.size() - before);
}

void Bpe::encode_part(std::string_view part, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  const bool is_short = WordCache::fits(part);
  WordCache::Key key;
  if (is_short) {
    key = WordCache::key_of(part);
    if (scratch.parts.find(key, ids)) return;
  }
  const std::size_t before = ids.size();
  scratch.units.clear();
  add_units(part, scratch.units);
  scratch.units.size() <= most_short ? merge_short(scratch) : merge_long(scratch);
  append_result(scratch.units, ids);
  if (is_short) scratch.parts.keep(key, ids.data() + before, ids.size() - before);
}

// `unknowns`: characters that wait for their token: as in the crate, it is added where a known one follows, behind the
// bytes of others.
void Bpe::add_unknown(std::string_view character, std::int32_t& unknowns, std::vector<std::int32_t>& units) const {
  if (options_.byte_fallback) {
    const bool all = std::all_of(character.begin(), character.end(),
                                 [&](char byte) { return byte_tokens_[static_cast<std::uint8_t>(byte)] >= 0; });
    if (all) {
      for (const char byte : character) units.push_back(byte_tokens_[static_cast<std::uint8_t>(byte)]);
      return;
    }
  }
  if (!options_.lacking.empty()) throw BadInput(options_.lacking + shown(character));
  if (options_.unknown < 0) return;
  if (unknowns > 0 && !options_.fuse_unknown) units.push_back(options_.unknown);
  unknowns = 1;
}

void Bpe::add_units(std::string_view part, std::vector<std::int32_t>& units) const {
  std::int32_t unknowns = 0;
  for (std::size_t at = 0; at < part.size();) {
    std::size_t bytes = 0;
    std::int32_t id = -1;
    if (!frozen_.empty()) {
      std::int32_t node = 0;
      for (std::size_t i = at; i < part.size(); ++i) {
        node = frozen_.step(node, static_cast<std::uint8_t>(part[i]));
        if (node == ByteTrie::none) break;
        if (frozen_.value(node) != ByteTrie::none) bytes = i + 1 - at, id = frozen_.value(node) | frozen_bit;
      }
    }
    if (id < 0) {
      bytes = character_bytes(part, at, options_.bytes);
      const std::string_view character = part.substr(at, bytes);
      if (options_.prefix.empty() && options_.suffix.empty()) {
        id = id_of_character(character, static_cast<char32_t>(code_at(part, at, options_.bytes)));
      } else {
        std::string text = (at > 0 ? options_.prefix : "") + std::string(character);
        if (at + bytes == part.size()) text += options_.suffix;
        id = vocabulary_.find(text);
        if (id < 0) {
          add_unknown(text, unknowns, units);
          at += bytes;
          continue;
        }
      }
    }
    const std::string_view character = part.substr(at, bytes);
    at += bytes;
    if (id < 0) {
      add_unknown(character, unknowns, units);
      continue;
    }
    if (unknowns > 0) units.push_back(options_.unknown);
    unknowns = 0;
    units.push_back(id);
  }
  if (unknowns > 0) units.push_back(options_.unknown);
}

void Bpe::merge_short(Scratch& scratch) const {
  constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::int32_t>& units = scratch.units;
  if (units.size() < 2) return;
  std::array<std::uint32_t, most_short> ranks;
  std::array<std::int32_t, most_short> results;
  const auto look = [&](std::size_t i) {
    const Found* found = merge_of(units[i], units[i + 1]);
    ranks[i] = found ? found->rank : never;
    results[i] = found ? found->result : -1;
  };
  std::size_t pairs = units.size() - 1;
  for (std::size_t i = 0; i < pairs; ++i) look(i);
  while (pairs > 0) {
    const std::size_t best = to_size(std::min_element(ranks.begin(), ranks.begin() + pairs) - ranks.begin());
    if (ranks[best] == never) break;
    units[best] = results[best];
    units.erase(units.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::move(ranks.begin() + best + 1, ranks.begin() + pairs, ranks.begin() + best);
    std::move(results.begin() + best + 1, results.begin() + pairs, results.begin() + best);
    --pairs;
    if (best > 0) look(best - 1);
    if (best < pairs) look(best);
  }
}

void Bpe::merge_long(Scratch& scratch) const {
  auto& links = scratch.links;
  auto& heap = scratch.heap;
  const std::size_t count = scratch.units.size();
  links.resize(count);
  heap.clear();
  const auto larger = [](std::uint64_t a, std::uint64_t b) { return a > b; };
  for (std::size_t i = 0; i < count; ++i)
    links[i] = {scratch.units[i], static_cast<std::int32_t>(i) - 1,
                i + 1 < count ? static_cast<std::int32_t>(i) + 1 : -1};
  const auto entry = [&](std::int32_t place) -> std::uint64_t {
    const auto& link = links[to_size(place)];
    if (link.next < 0) return ~std::uint64_t{0};
    const Found* found = merge_of(link.id, links[to_size(link.next)].id);
    return found ? static_cast<std::uint64_t>(found->rank) << 32 | static_cast<std::uint32_t>(place)
                 : ~std::uint64_t{0};
  };
  const auto add = [&](std::int32_t place) {
    const std::uint64_t key = entry(place);
    if (key == ~std::uint64_t{0}) return;
    heap.push_back(key);
    std::push_heap(heap.begin(), heap.end(), larger);
  };
  for (std::size_t i = 0; i < count; ++i)
    if (const std::uint64_t key = entry(static_cast<std::int32_t>(i)); key != ~std::uint64_t{0}) heap.push_back(key);
  std::make_heap(heap.begin(), heap.end(), larger);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), larger);
    const std::uint64_t key = heap.back();
    heap.pop_back();
    const auto place = static_cast<std::int32_t>(key & 0xFFFFFFFF);
    auto& left = links[to_size(place)];
    // An entry that other merges have overtaken.
    if (left.id < 0 || entry(place) != key) continue;
    auto& right = links[to_size(left.next)];
    left.id = merge_of(left.id, right.id)->result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) links[to_size(left.next)].previous = place;
    if (left.previous >= 0) add(left.previous);
    add(place);
  }
  scratch.units.clear();
  for (const auto& link : links)
    if (link.id >= 0) scratch.units.push_back(link.id);
}

void Bpe::append_result(const std::vector<std::int32_t>& units, std::vector<std::int32_t>& ids) const {
  if (virtual_texts_.empty()) {
    for (const std::int32_t unit : units) ids.push_back(unit & ~frozen_bit);
    return;
  }
  std::vector<std::int32_t> last;
  bool was_unknown = false;
  for (const std::int32_t unit : units) {
    const std::int32_t id = unit & ~frozen_bit;
    last.assign(1, id);
    if (id >= options_.first_virtual) {
      last.clear();
      std::int32_t unknowns = 0;
      add_unknown(virtual_texts_[to_size(id - options_.first_virtual)], unknowns, last);
      if (unknowns > 0) last.push_back(options_.unknown);
    }
    const bool is_unknown = last.size() == 1 && last.front() == options_.unknown;
    if (!(is_unknown && was_unknown)) ids.insert(ids.end(), last.begin(), last.end());
    was_unknown = is_unknown;
  }
}

}  // namespace forge
