#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/token_file.hpp"

namespace forge {

// What a list of token files is read as.
struct TokenSetOptions {
  std::vector<std::string> files;
  TokenType dtype = TokenType::none;
  std::int64_t sequence_tokens = 0;      // T
  std::int64_t vocabulary = 0;           // V: ids are 0 … V−1
  std::int64_t document_end_token = -1;  // −1 = the text is one document
};

// A list of token files as samples: sample i of a file is its tokens [i·T, i·T + T], inputs the first T of them and
// labels the last T. A tail that doesn't fill a sample is dropped; the files follow each other.
class TokenSet {
 public:
  // Opens every file and checks what can be checked without reading it; one BadInput lists all that is wrong.
  explicit TokenSet(TokenSetOptions options);

  const TokenSetOptions& options() const { return options_; }
  std::int64_t sequence_tokens() const { return options_.sequence_tokens; }
  // Samples, and tokens, of all files.
  std::int64_t samples() const { return first_sample_.back(); }
  std::int64_t tokens() const;
  const std::vector<TokenFile>& files() const { return files_; }

  struct SamplePosition {
    std::size_t file = 0;
    std::int64_t sample = 0;  // within the file
  };
  SamplePosition locate(std::int64_t sample) const;
  // The T + 1 tokens of a sample, checked against the vocabulary; see TokenFile::read.
  void read(std::int64_t sample, std::span<std::int32_t> out) const;

 private:
  TokenSetOptions options_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> first_sample_;  // (files + 1)
};

}  // namespace forge
