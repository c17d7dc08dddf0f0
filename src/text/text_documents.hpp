#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/resumable_tokens.hpp"
#include "text/text_file.hpp"
#include "text/tokenize_text.hpp"

namespace forge {

// Documents of one file that are encoded in one go: a whole text, or lines of JSON.
struct TextTask {
  std::string_view bytes;
  std::size_t file = 0;
  std::int64_t first_line = 0;  // 0: a text
};

// The texts that are tokenized at a time.
struct TextRound {
  std::vector<std::unique_ptr<std::string>> buffers;
  std::vector<TextTask> tasks;
  TokenizePosition end;  // behind it
  double done = 0;       // of all input bytes, as they are stored
};

// Reads rounds, in the order of the files.
class RoundReader {
 public:
  RoundReader(const TokenizeTextOptions& options, std::size_t round_bytes, const TokenizePosition& begin);
  TextRound next();

 private:
  void open_file();
  void skip(std::uint64_t bytes);
  void next_file();
  std::size_t read_text(TextRound& round);
  std::size_t read_lines(TextRound& round, std::size_t most);
  void add_lines(TextRound& round, std::string_view lines);

  const TokenizeTextOptions& options_;
  std::size_t round_bytes_;
  TokenizePosition at_;
  std::optional<TextFile> file_;
  std::string rest_;
  std::vector<std::uint64_t> ends_;
  std::uint64_t total_ = 0;
};

using UseDocument = std::function<void(std::string_view)>;

// Calls `use` for the text of a whole file as it is tokenized, valid UTF-8, and counts ill-formed bytes. False: there
// is none.
bool use_text(const TokenizeTextOptions& options, const TextTask& task, IllFormedBytes& ill_formed,
              const UseDocument& use);
// Likewise for each document of some lines; empty lines have none. BadInput: a line that is no map with the field.
void use_lines(const TokenizeTextOptions& options, const TextTask& task, IllFormedBytes& ill_formed,
               const UseDocument& use);

}  // namespace forge
