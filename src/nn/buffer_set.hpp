#pragma once

#include <array>

#include "core/error.hpp"
#include "core/view.hpp"
#include "device/arena.hpp"
#include "model/buffers.hpp"

namespace forge {

// The buffers that a layer works on, by name. Sets are values: a block's set is its slot's set plus what its frame
// adds.
class BufferSet {
 public:
  // Allocates a list; earlier buffers of the same name are hidden.
  void add(const BufferList& list, Arena& arena, Category category);
  // Takes over the buffers of another set.
  void merge(const BufferSet& other);
  // Calls this memory a buffer of the set.
  template <class T>
  void name(Buf id, View<T, 2> data) {
    require(data.dense(), "a buffer has no gaps between its rows");
    entries_[static_cast<std::size_t>(id)] = {data.data, data.extents, dtype_of<T>};
  }

  bool has(Buf id) const { return entry(id).data != nullptr; }
  template <class T>
  View<T, 2> matrix(Buf id) const {
    const Entry& e = checked(id, dtype_of<T>);
    return View<T, 2>(static_cast<T*>(e.data), e.extents);
  }
  // All elements in one extent.
  template <class T>
  View<T, 1> vector(Buf id) const {
    const Entry& e = checked(id, dtype_of<T>);
    return View<T, 1>(static_cast<T*>(e.data), {{e.extents[0] * e.extents[1]}});
  }
  void* raw(Buf id) const { return entry(id).data; }

 private:
  struct Entry {
    void* data = nullptr;
    Array<std::int64_t, 2> extents{};
    DType dtype = DType::f64;
  };
  const Entry& entry(Buf id) const { return entries_[static_cast<std::size_t>(id)]; }
  const Entry& checked(Buf id, DType type) const {
    const Entry& e = entry(id);
    require(e.data != nullptr, "a layer asked for a buffer that is in none of its lists");
    require(e.dtype == type, "a layer asked for a buffer in another type than its list says");
    return e;
  }

  std::array<Entry, buffer_count> entries_{};
};

}  // namespace forge
