#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// Sees every kernel over rows before it runs, for tests, which hold the lists of nn/*.plan.cpp to them.
class RowTape {
 public:
  virtual ~RowTape() = default;
  // Bytes as if each array were read or written once; vectors, and arrays with a few numbers a row beside wide ones,
  // are left out.
  virtual void rows(const Stream& stream, std::string_view name, std::int64_t read, std::int64_t written) = 0;
};
inline thread_local RowTape* row_tape = nullptr;  // of the rank whose host thread this is; null: none

// Notes the kernels over rows of a block of code.
class NotedRows {
 public:
  explicit NotedRows(RowTape* tape) : before_(std::exchange(row_tape, tape)) {}
  ~NotedRows() { row_tape = before_; }
  NotedRows(const NotedRows&) = delete;
  NotedRows& operator=(const NotedRows&) = delete;

 private:
  RowTape* before_;
};

// Bytes of all numbers of some views.
template <class... T, int... N>
std::int64_t bytes_in(const View<T, N>&... x) {
  return ((x.size() * static_cast<std::int64_t>(sizeof(T))) + ... + 0);
}

// Each kernel over rows calls it once.
inline void note_rows(const Stream& stream, std::string_view name, std::int64_t read, std::int64_t written) {
  if (row_tape && read + written > 0) row_tape->rows(stream, name, read, written);
}

}  // namespace forge
