#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forge {

// Documents that are packed together: planning needs memory for so many at a time, whatever the size of the data.
inline constexpr std::int64_t packing_window = 65536;

// A document, or T tokens of a longer one.
struct DocumentPiece {
  std::int64_t first = 0;  // token of the whole set
  std::int64_t length = 0;
  bool continues = false;  // the document goes on behind it: its last token has a label
};

// visit(piece) of a document of tokens [begin, end): each has T but the last. One without a label is left out.
template <class Visit>
void for_each_piece(std::int64_t begin, std::int64_t end, std::int64_t T, Visit visit) {
  for (; begin < end; begin += T) {
    const std::int64_t length = T < end - begin ? T : end - begin;
    const bool continues = begin + length < end;
    if (length > 1 || continues) visit(DocumentPiece{begin, length, continues});
  }
}

// Best-fit decreasing of pieces of at most T tokens into samples of T (Ding et al. 2024, "Fewer Truncations Improve
// Language Modeling", arXiv 2404.10830): by length, the longest first, each into the sample with the least room left
// that has enough, or a new one. Equal pieces in their order, equal samples the first. Returns the pieces of each
// sample, by number, ascending.
std::vector<std::vector<std::uint32_t>> best_fit(std::span<const DocumentPiece> pieces, std::int64_t T);

}  // namespace forge
