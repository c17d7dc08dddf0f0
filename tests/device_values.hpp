#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "core/error.hpp"
#include "core/view.hpp"
#include "device/device_memory.hpp"

// Device memory, for tests: hosts read and write it by copies, in every build. Each call waits for the stream.

namespace forge::test {

// The elements of a view, row-major, without the gaps between its rows.
template <class T, int N>
std::vector<std::remove_const_t<T>> values_of(Stream& stream, const View<T, N>& view) {
  using Value = std::remove_const_t<T>;
  if (view.size() == 0) return {};
  std::vector<Value> all(static_cast<std::size_t>((view.rows() - 1) * view.pitch + view.columns()));
  copy_to_host(stream, all.data(), view.data, all.size() * sizeof(Value));
  stream.synchronize();
  if (view.dense()) return all;
  std::vector<Value> dense;
  for (std::int64_t r = 0; r < view.rows(); ++r)
    dense.insert(dense.end(), all.begin() + r * view.pitch, all.begin() + r * view.pitch + view.columns());
  return dense;
}

// Writes the elements of a dense view.
template <class T, int N>
void set_values(Stream& stream, const View<T, N>& view, const std::vector<T>& values) {
  require(view.dense() && static_cast<std::int64_t>(values.size()) == view.size(), "set_values: sizes differ");
  copy_to_device(stream, view.data, values.data(), values.size() * sizeof(T));
  stream.synchronize();
}

// A dense array of its own in device memory.
template <class T, int N>
class DeviceArray {
 public:
  DeviceArray(Stream& stream, const Array<std::int64_t, N>& extents, const std::vector<T>& values)
      : stream_(stream), memory_(std::max<std::size_t>(1, values.size()) * sizeof(T)), view_(data(), extents) {
    set(values);
  }
  // Zeros.
  DeviceArray(Stream& stream, const Array<std::int64_t, N>& extents)
      : DeviceArray(stream, extents, std::vector<T>(static_cast<std::size_t>(View<T, N>(nullptr, extents).size()))) {}

  const View<T, N>& view() const { return view_; }
  operator View<T, N>() const { return view_; }
  operator View<const T, N>() const { return view_; }
  std::vector<T> get() const { return values_of(stream_, view_); }
  void set(const std::vector<T>& values) { set_values(stream_, view_, values); }

 private:
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  Stream& stream_;
  Buffer memory_;
  View<T, N> view_;
};

}  // namespace forge::test
