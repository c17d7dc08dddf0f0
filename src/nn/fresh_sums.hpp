#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/to_size.hpp"
#include "core/view.hpp"
#include "device/device_memory.hpp"
#include "device/stream.hpp"

namespace forge {

// The parts of gradients in which nothing stands yet, of memory that was not cleared: the first product that adds to
// such a part overwrites it, which saves a pass that clears and one that reads. A is the type of the sums.
template <class A>
class FreshSums {
 public:
  // There are none.
  void forget() { parts_.clear(); }
  // data(n) holds nothing.
  void begin(const A* data, std::int64_t n) {
    if (n > 0) parts_.push_back({data, data + n});
  }

  // Whether c holds nothing, so that the caller has to overwrite all of it. If not, what of it holds nothing is zero
  // from here on.
  bool take(Stream& stream, const View<A, 2>& c) {
    if (c.size() == 0) return false;
    const Part hull{c.data, c.data + (c.rows() - 1) * c.pitch + c.columns()};
    for (Part& part : parts_)
      if (c.pitch == c.columns() && part.begin <= hull.begin && hull.end <= part.end) {
        cut(hull);
        return true;
      }
    clear(stream, hull.begin, hull.end - hull.begin);
    return false;
  }

  // What of data(n) holds nothing is zero from here on.
  void clear(Stream& stream, const A* data, std::int64_t n) {
    const Part range{data, data + n};
    for (const Part& part : parts_) {
      const Part both{std::max(part.begin, range.begin), std::min(part.end, range.end)};
      if (both.begin < both.end)
        fill_zero(stream, const_cast<A*>(both.begin), to_size(both.end - both.begin) * sizeof(A));
    }
    cut(range);
  }

 private:
  struct Part {
    const A *begin, *end;
  };

  // Takes the range out of the parts, in their place: a step asks the heap for nothing.
  void cut(const Part& range) {
    for (std::size_t i = 0; i < parts_.size();) {
      Part& part = parts_[i];
      const bool before = part.begin < range.begin, behind = range.end < part.end;
      if (part.end <= range.begin || range.end <= part.begin) {
        ++i;
      } else if (before && behind) {
        const Part rest{range.end, part.end};
        part.end = range.begin;
        parts_.push_back(rest);
        ++i;
      } else if (before || behind) {
        (before ? part.end : part.begin) = before ? range.begin : range.end;
        ++i;
      } else {
        part = parts_.back();
        parts_.pop_back();
      }
    }
  }

  std::vector<Part> parts_;
};

}  // namespace forge
