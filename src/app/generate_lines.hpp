#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/command_line.hpp"
#include "app/model_text.hpp"
#include "train/sampling.hpp"

namespace forge {

// A line of JSON to continue.
struct GenerateLine {
  std::vector<std::int32_t> prompt;  // at least one token
  std::int64_t left_out = 0;         // tokens of it, from its left, for which there is no room
  std::int64_t length = 0;           // tokens to add at most
  SamplingOptions options;
  std::vector<std::string> stop;
};

// Reads lines {"prompt": …}, a text or a list of ids, an empty one is the model's document begin, else its document
// end; "length", "temperature", "top_k", "top_p", "seed" and "stop", a text or a list, in the place of the command
// line's options of these names.
class GenerateLines {
 public:
  GenerateLines(const CommandLine& line, const ModelText& text, const Deck& deck);
  // BadInput, which begins with `place`: no such line, an id outside of the vocabulary, a value that the option of its
  // name refuses, or a length for which train.sequence_tokens has no room.
  GenerateLine read(std::string_view line, const std::string& place) const;

 private:
  const CommandLine& line_;
  const ModelText& text_;
  std::int64_t vocabulary_, tokens_;
};

}  // namespace forge
