#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/packing.hpp"
#include "data/sample.hpp"
#include "data/token_file.hpp"

namespace forge {

// The files of a list of token files, and how they are read.
struct TokenSetOptions {
  std::vector<std::string> files;
  TokenType dtype = TokenType::none;
  std::int64_t sequence_tokens = 0;      // T
  std::int64_t vocabulary = 0;           // V: ids are 0 … V−1
  std::int64_t document_end_token = -1;  // −1 = none
  DocumentEnds document_ends = DocumentEnds::token;
  std::vector<std::string> mask_files = {};  // one for each file, or none
  Packing packing = Packing::cut;
  std::string packing_directory = {};  // where plans of packing are kept
  Heartbeat* heartbeat = nullptr;      // beats while a plan is made

  bool has_documents() const { return document_end_token >= 0 || document_ends == DocumentEnds::index; }
};

// A list of token files as samples of T tokens.
// Cut: sample i of a file is its tokens [i·T, i·T + T], inputs the first T of them and labels the last T. A tail that
// doesn't fill a sample is dropped; the files follow each other.
// Pairs: sample i is documents 2 i and 2 i + 1, and filled up as packed ones are.
// Packed: samples are documents, and parts of those that are longer than T, by a plan that is made once and kept; the
// rest of T is filled up with token 0, without labels.
class TokenSet {
 public:
  // Opens every file and checks it without reading tokens; one BadInput lists all errors, a line each. Then
  // open_plan(), unless the caller does that later, when other sets have been opened too.
  explicit TokenSet(TokenSetOptions options, bool with_plan = true);
  // For packed samples, before anything else: makes the plan where there is none yet, which takes its time.
  void open_plan();

  const TokenSetOptions& options() const { return options_; }
  std::int64_t sequence_tokens() const { return options_.sequence_tokens; }
  // Samples, and tokens, of all files.
  std::int64_t samples() const { return plan_ ? plan_->samples() : first_sample_.back(); }
  std::int64_t tokens() const { return first_token_.back(); }
  const std::vector<TokenFile>& files() const { return files_; }
  // The plan of packed sets, else null.
  const PackingPlan* plan() const { return plan_ ? &*plan_ : nullptr; }

  struct SamplePosition {
    std::size_t file = 0;
    std::int64_t sample = 0;  // within the file
  };
  SamplePosition locate(std::int64_t sample) const;
  // Inputs of a sample that stand one behind the other in a file; without filler.
  struct Stretch {
    std::size_t file = 0;
    std::int64_t first = 0, length = 0;  // tokens of the file
  };
  std::vector<Stretch> stretches(std::int64_t sample) const;
  // A sample of T tokens, checked against the vocabulary; see TokenFile::read. A document's last token has no label,
  // nor has one before a masked token. Allocates nothing; of several threads.
  void read(std::int64_t sample, Sample& out) const;
  // For pairs: sets the reference's log-probabilities of documents 0, 1, …, which samples have from here on.
  void set_references(std::vector<double> values);
  const std::vector<double>& references() const { return references_; }
  // The T + 1 tokens of a sample that is cut.
  void read(std::int64_t sample, std::span<std::int32_t> out) const;

 private:
  void open_files();
  // token_set_packing.cpp
  void write_plan(const std::string& path, std::uint64_t key) const;
  void add_documents(std::size_t file, PackingPlanWriter& writer) const;
  void check_text(std::size_t file, std::int64_t begin, std::int64_t end, std::int64_t number) const;
  std::uint64_t plan_key() const;
  std::size_t file_of(std::int64_t token) const;
  void read_cut(std::int64_t sample, Sample& out) const;
  void read_packed(std::int64_t sample, Sample& out) const;
  bool read_piece(const DocumentPiece& piece, std::size_t at, std::int32_t document, Sample& out) const;
  void read_mask(std::size_t file, std::int64_t first, std::size_t at, std::size_t count, Sample& out) const;
  void mark_documents(std::size_t file, std::int64_t first, Sample& out) const;

  TokenSetOptions options_;
  std::vector<TokenFile> files_, masks_;
  std::vector<std::int64_t> first_sample_, first_token_;  // (files + 1)
  std::optional<PackingPlan> plan_;
  std::vector<double> references_;  // (2 samples), or none
};

}  // namespace forge
