#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace forge {

// Bytes of texts that are no UTF-8.
struct IllFormedBytes {
  std::int64_t bytes = 0, of = 0;  // of so many that were read
  std::string first;               // where the first one stands; "": there is none

  void add(const IllFormedBytes& other);
  // Counts those of a text; `place` names it, and has the byte behind it where `with_offset`. Returns how many bytes at
  // the end are the beginning of a character, which are counted only where the text `ends` there.
  std::size_t count(std::string_view text, const std::string& place, std::int64_t offset, bool with_offset, bool ends);
};

}  // namespace forge
