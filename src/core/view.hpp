#pragma once

#include <cstdint>
#include <type_traits>

#include "core/array.hpp"
#include "core/macros.hpp"
#include "core/types.hpp"

namespace forge {

// A non-owning row-major view of N extents. Rows (the first index) may be `pitch` elements apart, so that the columns
// of Q inside a fused QKV buffer are a View too; the other extents are dense. Device-callable, passed by value.
template <class T, int N>
struct View {
  T* data = nullptr;
  Array<std::int64_t, N> extents{};
  std::int64_t pitch = 0;

  View() = default;
  FORGE_INLINE View(T* p, Array<std::int64_t, N> e) : data(p), extents(e), pitch(dense_pitch(e)) {}
  FORGE_INLINE View(T* p, Array<std::int64_t, N> e, std::int64_t row_pitch) : data(p), extents(e), pitch(row_pitch) {}
  // View<T> to View<const T>.
  template <class U>
  requires std::is_same_v<const U, T> FORGE_INLINE View(const View<U, N>& other)
      : data(other.data), extents(other.extents), pitch(other.pitch) {}

  FORGE_INLINE std::int64_t extent(int axis) const { return extents[axis]; }
  FORGE_INLINE std::int64_t rows() const { return extents[0]; }
  // Elements of one row.
  FORGE_INLINE std::int64_t columns() const { return dense_pitch(extents); }
  FORGE_INLINE std::int64_t size() const { return rows() * columns(); }
  FORGE_INLINE bool dense() const { return pitch == columns(); }
  FORGE_INLINE bool empty() const { return data == nullptr; }
  FORGE_INLINE T* row(std::int64_t i) const { return data + i * pitch; }
  FORGE_INLINE T& operator[](std::int64_t i) const requires(N == 1) { return data[i]; }
  // Rows [begin, end).
  FORGE_INLINE View slice(std::int64_t begin, std::int64_t end) const {
    View part = *this;
    part.data = row(begin);
    part.extents[0] = end - begin;
    return part;
  }

 private:
  FORGE_INLINE static std::int64_t dense_pitch(const Array<std::int64_t, N>& e) {
    std::int64_t n = 1;
    for (int i = 1; i < N; ++i) n *= e[i];
    return n;
  }
};

// Columns [begin, begin + count) of a matrix.
template <class T>
FORGE_INLINE View<T, 2> columns_of(const View<T, 2>& matrix, std::int64_t begin, std::int64_t count) {
  return View<T, 2>(matrix.data + begin, {{matrix.rows(), count}}, matrix.pitch);
}

// All elements of a dense view, in one extent.
template <class T, int N>
FORGE_INLINE View<T, 1> line_of(const View<T, N>& x) {
  return View<T, 1>(x.data, {{x.size()}});
}

}  // namespace forge
