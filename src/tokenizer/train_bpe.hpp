#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/regex.hpp"

namespace forge {

// The text of a document's end in a tokenizer that forge trains; its id is 0.
inline constexpr const char* trained_document_end = "<|endoftext|>";

// Trains a byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) on texts that are counted first. Deterministic:
// of pairs that are equally frequent the one with the lower ids is merged first.
class BpeTrainer {
 public:
  // `pattern`: cuts the text into the words within which bytes merge, by the rules of tokenizer.json.
  explicit BpeTrainer(const std::string& pattern);

  // Counts the words of a text, valid UTF-8.
  void add(std::string_view text);
  // Merges until there are `ids` ids, or no pair is there twice. Returns tokenizer.json's text.
  std::string train(std::int64_t ids);

 private:
  struct Word {
    std::vector<std::int32_t> ids;
    std::int64_t count;
  };
  struct State;
  using Merges = std::vector<std::pair<std::int32_t, std::int32_t>>;
  Merges merges(std::int64_t ids) const;
  void write_vocabulary(const Merges& merges, std::string& vocab, std::string& list) const;

  std::string pattern_;
  Regex regex_;
  RegexScratch scratch_;
  std::unordered_map<std::string, std::int64_t> words_;
};

}  // namespace forge
