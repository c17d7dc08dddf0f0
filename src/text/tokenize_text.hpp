#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "text/tokenize.hpp"
#include "tokenizer/tokenizer.hpp"

namespace forge {

// The last three have documents or headers of their own (text/token_writer.hpp); a killed run begins anew with them.
enum class OutputFormat { smallest, uint16, uint32, npy, megatron, llm_c, ds };
// The words of --format for them, in this order.
inline constexpr std::array output_format_words{"", "uint16", "uint32", "npy", "megatron", "llm.c", "ds"};

struct TokenizeTextOptions {
  std::vector<std::string> inputs;  // one behind the other
  std::string output;
  std::string field = "text";        // of lines of JSON
  std::int32_t document_begin = -1;  // the id before each document; -1: none
  std::int32_t document_end = -1;    // the id behind each
  OutputFormat format = OutputFormat::smallest;
  int threads = 0;                                // 0: as many as there are cores
  std::size_t round_bytes = 0;                    // of text that is worked on at a time; 0: 2 MiB a thread
  std::function<void(const std::string&)> say{};  // progress, a line each; may be empty
  std::function<void()> after_round{};            // behind each round's note, for tests; may be empty
};

struct TokenizeTextResult {
  std::int64_t bytes = 0;      // of text
  std::int64_t tokens = 0;     // written
  std::int64_t documents = 0;  // with text
  bool wide = false;           // uint32
  bool resumed = false;
  IllFormedBytes ill_formed;  // since the last resumption
};

// Writes the token file of texts: each file a document, or each of its lines of JSON (text/text_file.hpp). Ill-formed
// UTF-8 becomes U+FFFD. The output appears under its name when it is complete and on the disk. The files of a killed
// run stay beside it (output.partial, output.progress), and the same call goes on there; the result is the same. A
// failure leaves nothing.
TokenizeTextResult tokenize_text(const Tokenizer& tokenizer, const TokenizeTextOptions& options);

// Throws one BadInput that names the inputs which are no texts, the first ten of them.
void check_texts(const TokenizeTextOptions& options);

// Calls `use` for each document of the inputs, in order, as tokenize_text reads them. Returns their bytes.
std::int64_t read_documents(const TokenizeTextOptions& options, const std::function<void(std::string_view)>& use,
                            IllFormedBytes* ill_formed = nullptr);

}  // namespace forge
