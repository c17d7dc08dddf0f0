#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <type_traits>

#include "core/error.hpp"

namespace forge {

// A list of at most N elements that lives where it stands: making one asks for no memory, so that a step may.
template <class T, std::size_t N>
class ShortList {
 public:
  ShortList() = default;
  ShortList(std::initializer_list<T> elements) { insert(end(), elements.begin(), elements.end()); }

  void push_back(const T& element) {
    require(size_ < N, "a short list is full");
    elements_[size_++] = element;
  }
  // At the end only.
  template <class Iterator>
  void insert(T* at, Iterator first, Iterator last) {
    require(at == end(), "a short list grows at its end");
    for (; first != last; ++first) push_back(*first);
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return elements_.data(); }
  T* end() { return elements_.data() + size_; }
  const T* begin() const { return elements_.data(); }
  const T* end() const { return elements_.data() + size_; }
  T& operator[](std::size_t i) { return elements_[i]; }
  const T& operator[](std::size_t i) const { return elements_[i]; }
  T& back() { return elements_[size_ - 1]; }
  const T& back() const { return elements_[size_ - 1]; }
  T& front() { return elements_[0]; }
  const T& front() const { return elements_[0]; }

 private:
  static_assert(std::is_trivially_copyable_v<T>);
  std::array<T, N> elements_;
  std::size_t size_ = 0;
};

}  // namespace forge
