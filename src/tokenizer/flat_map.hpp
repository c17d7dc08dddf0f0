#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace forge {

// A hash map from 64-bit keys, but the largest, to small values: open addressing with linear probing, at most half
// full. Nothing is removed.
template <class Value>
class FlatMap {
 public:
  const Value* find(std::uint64_t key) const {
    if (count_ == 0) return nullptr;
    for (std::size_t i = slot(key);; i = (i + 1) & mask_) {
      if (entries_[i].key == key) return &entries_[i].value;
      if (entries_[i].key == empty) return nullptr;
    }
  }
  // False, and nothing changed, where the key is there.
  bool insert(std::uint64_t key, const Value& value) {
    if (2 * (count_ + 1) > entries_.size()) grow();
    std::size_t i = slot(key);
    for (; entries_[i].key != empty; i = (i + 1) & mask_)
      if (entries_[i].key == key) return false;
    entries_[i] = {key, value};
    ++count_;
    return true;
  }
  void set(std::uint64_t key, const Value& value) {
    if (!insert(key, value)) *const_cast<Value*>(find(key)) = value;
  }
  std::size_t size() const { return count_; }

 private:
  static constexpr std::uint64_t empty = ~std::uint64_t{0};
  struct Entry {
    std::uint64_t key = empty;
    Value value{};
  };
  std::size_t slot(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15u >> shift_) & mask_; }
  void grow() {
    std::vector<Entry> old = std::move(entries_);
    const std::size_t size = old.empty() ? 16 : 2 * old.size();
    entries_ = std::vector<Entry>(size);
    mask_ = size - 1;
    shift_ = 64;
    for (std::size_t n = size; n > 1; n /= 2) --shift_;
    count_ = 0;
    for (const Entry& entry : old)
      if (entry.key != empty) insert(entry.key, entry.value);
  }

  std::vector<Entry> entries_;
  std::size_t mask_ = 0, count_ = 0;
  int shift_ = 64;
};

}  // namespace forge
