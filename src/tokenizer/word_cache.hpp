#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace forge {

// The ids of short words that were met before. A place holds one word, compared byte by byte; a new one takes the place
// of an old one. 64 bytes a place, a cache line.
class WordCache {
 public:
  static constexpr std::size_t most_bytes = 31, most_ids = 6;
  static constexpr int bits = 15;  // of a place

  WordCache() : entries_(places) {}

  // The key of a word of at most most_bytes, padded with zeros.
  struct Key {
    std::array<std::uint64_t, 4> words;  // the last byte is the length
    std::size_t place;
    // Four comparisons of numbers: no call.
    bool is(const std::array<std::uint64_t, 4>& other) const {
      return ((words[0] ^ other[0]) | (words[1] ^ other[1]) | (words[2] ^ other[2]) | (words[3] ^ other[3])) == 0;
    }
  };
  static bool fits(std::string_view word) { return word.size() <= most_bytes; }
  static Key key_of(std::string_view word) {
    Key key{};
    std::memcpy(key.words.data(), word.data(), word.size());
    return finished(key, word);
  }
  // The key of a word that its text goes on behind: a load of fixed size, of which the word's bytes are kept.
  static Key key_of(std::string_view word, std::string_view text_from_word) {
    Key key{};
    if (text_from_word.size() < sizeof key.words) return key_of(word);
    std::memcpy(key.words.data(), text_from_word.data(), sizeof key.words);
    std::array<std::uint64_t, 4> kept;
    const char* const ones = reinterpret_cast<const char*>(ones_then_zeros.data());
    std::memcpy(kept.data(), ones + sizeof kept - word.size(), sizeof kept);
    for (std::size_t i = 0; i < kept.size(); ++i) key.words[i] &= kept[i];
    return finished(key, word);
  }
  // Appends the ids; false: the word isn't there.
  bool find(const Key& key, std::vector<std::int32_t>& ids) const {
    const Entry& entry = entries_[key.place];
    if (!key.is(entry.words)) return false;
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + static_cast<std::ptrdiff_t>(entry.count));
    return true;
  }
  void keep(const Key& key, const std::int32_t* ids, std::size_t count) {
    if (count == 0 || count > most_ids) return;
    Entry& entry = entries_[key.place];
    entry.words = key.words;
    entry.count = static_cast<std::uint32_t>(count);
    std::memcpy(entry.ids.data(), ids, count * sizeof(std::int32_t));
  }

 private:
  // Loads from within it mask any number of bytes up to 32.
  static constexpr std::array<std::uint64_t, 8> ones_then_zeros{~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0},
                                                                ~std::uint64_t{0}};
  static Key finished(Key key, std::string_view word) {
    key.words[3] |= static_cast<std::uint64_t>(word.size() + 1) << 56;
    std::uint64_t hash = key.words[0] * 0x9E3779B97F4A7C15u ^ key.words[3] * 0xC2B2AE3D27D4EB4Fu;
    hash ^= (key.words[1] + 0x165667B19E3779F9u * key.words[2]) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
    key.place = hash * 0x9E3779B97F4A7C15u >> (64 - bits);
    return key;
  }
  static constexpr std::size_t places = std::size_t{1} << bits;
  struct alignas(64) Entry {
    std::array<std::uint64_t, 4> words{};  // zeros: none, for a length is at least 1
    std::uint32_t count = 0;
    std::array<std::int32_t, most_ids> ids{};
  };
  std::vector<Entry> entries_;
};

}  // namespace forge
