#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/output_file.hpp"

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

// A plan of packing on the disk: "forgepk1", key, T, samples, pieces, tokens and documents that they hold (u64 each),
// 0; of each piece its first token and its length (u64 each; the highest bit of the length: it continues); of each
// sample its first piece, and the number of pieces (u64).
class PackingPlan {
 public:
  // Throws BadInput that names the file and the byte offset where it isn't the plan of this key.
  static PackingPlan open(const std::string& path, std::uint64_t key, std::int64_t T);

  const std::string& path() const { return path_; }
  std::int64_t samples() const { return samples_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }
  // The numbers of a sample's pieces, first … end − 1. Of several threads, as all that reads.
  struct Range {
    std::int64_t first = 0, end = 0;
  };
  Range range_of(std::int64_t sample) const;
  // Pieces first, first + 1, …; each has 1 … T tokens.
  void read(std::int64_t first, std::span<DocumentPiece> out) const;
  // Throws BadInput: piece i isn't in the files, or doesn't fit.
  [[noreturn]] void refuse_piece(std::int64_t i) const;

 private:
  PackingPlan(FileHandle file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  [[noreturn]] void refuse(std::int64_t offset, const std::string& what) const;
  std::int64_t offset_of_firsts() const;

  FileHandle file_;
  std::string path_;
  std::int64_t T_ = 0, samples_ = 0, pieces_ = 0, tokens_ = 0, documents_ = 0;
};

// Writes a plan: documents one by one, in order, packed by windows; or, where they are pairs, each two in a sample. The
// file appears when it is complete; a failure leaves none.
class PackingPlanWriter {
 public:
  PackingPlanWriter(const std::string& path, std::uint64_t key, std::int64_t T, bool pairs = false);
  // Tokens [begin, end) of the set. BadInput where a pair is longer than a sample.
  void add_document(std::int64_t begin, std::int64_t end);
  void finish();

 private:
  void pack();
  void put_pair();
  void put(const DocumentPiece& piece);
  void flush();

  OutputFile file_;
  std::uint64_t key_;
  bool pairs_;
  std::int64_t T_, documents_ = 0, in_window_ = 0, pieces_ = 0, tokens_ = 0;
  std::uint64_t written_;
  std::vector<DocumentPiece> window_;
  std::vector<std::uint64_t> buffer_, firsts_;
};

}  // namespace forge
