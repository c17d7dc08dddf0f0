#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/byte_vocabulary.hpp"

namespace forge {

// Bytes of texts that are no UTF-8.
struct IllFormedBytes {
  std::int64_t bytes = 0, of = 0;  // of so many that were read
  std::string first;               // where the first one stands; "": there is none

  void add(const IllFormedBytes& other);
  // Counts a text's bytes; `place` names it, and has the byte behind it where `with_offset`. Returns how many bytes at
  // the end are the beginning of a character, which are counted only where the text `ends` there.
  std::size_t count(std::string_view text, const std::string& place, std::int64_t offset, bool with_offset, bool ends);
};

// Where documents end.
enum class DocumentEnd {
  none,         // the text is one; ids are 0 … 255
  file,         // behind each input file
  blank_lines,  // behind each run of empty lines, and behind each input file
};

struct TokenizeOptions {
  std::vector<std::string> inputs;  // text files, one behind the other
  std::string output;               // token file, raw uint16
  DocumentEnd document_end = DocumentEnd::none;
};

struct TokenizeResult {
  std::int64_t bytes = 0;      // of text
  std::int64_t tokens = 0;     // written
  std::int64_t documents = 0;  // document ends written
  IllFormedBytes ill_formed;   // kept as they are
};

// Writes the token file of some texts, piece by piece; every byte is kept. The output appears under its name only when
// it is complete and on the disk.
TokenizeResult tokenize_bytes(const TokenizeOptions& options);

}  // namespace forge
