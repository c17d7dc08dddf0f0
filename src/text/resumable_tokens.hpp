#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/file_handle.hpp"
#include "text/tokenize_text.hpp"

namespace forge {

// A place in the inputs: everything before it is in the output.
struct TokenizePosition {
  std::size_t file = 0;
  std::uint64_t offset = 0;  // in the file, decompressed
  std::int64_t line = 1;     // there, of a .jsonl file
};

// Removes the files of a killed run (OUTPUT.partial, OUTPUT.progress), for callers that write the output otherwise.
void remove_notes(const std::string& output);

// Writes a token file beside its name, with a note of how far it is, by which the same call goes on after a kill.
// Without finish() both are removed, but where the process ends at once.
class ResumableTokens {
 public:
  ResumableTokens(const Tokenizer& tokenizer, const TokenizeTextOptions& options, bool wide);
  ~ResumableTokens();
  ResumableTokens(const ResumableTokens&) = delete;
  ResumableTokens& operator=(const ResumableTokens&) = delete;

  // Where a killed run of the same call stopped, and its result until there.
  const TokenizePosition& position() const { return position_; }
  const TokenizeTextResult& resumed() const { return resumed_; }

  void write(const std::vector<std::int32_t>& ids);
  // Notes that all before `position` is written.
  void keep(const TokenizePosition& position, const TokenizeTextResult& result);
  void finish();

 private:
  bool read_note();
  std::string partial() const { return output_ + ".partial"; }
  std::string note() const { return output_ + ".progress"; }

  std::string output_, call_;  // call_: equal where a run may go on
  bool npy_, wide_;
  TokenizePosition position_;
  TokenizeTextResult resumed_;
  std::uint64_t written_ = 0;  // bytes
  FileHandle file_;
  std::vector<std::uint16_t> narrow_;
  bool finished_ = false;
};

}  // namespace forge
