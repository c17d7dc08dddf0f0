#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "app/verbs.hpp"
#include "config/output_lock.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "data/text_file.hpp"
#include "data/tokenize.hpp"
#include "data/tokenize_text.hpp"
#include "tokenizer/readers.hpp"
#include "tokenizer/train_bpe.hpp"

namespace forge {

namespace {

// The texts of the command line, then those that --files-from names.
std::vector<std::string> inputs_of(const CommandLine& line) {
  constexpr std::size_t most_list_bytes = std::size_t{1} << 30;
  std::vector<std::string> inputs = line.inputs;
  if (line.files_from.empty()) return inputs;
  const std::string text = read_text_file(line.files_from, most_list_bytes, "--files-from");
  const char separator = text.find('\0') == std::string::npos ? '\n' : '\0';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    // A list from Windows ends its lines with a carriage return too.
    const bool returns = separator == '\n' && end > at && text[end - 1] == '\r';
    if (const std::string path = text.substr(at, end - at - (returns ? 1 : 0)); !path.empty()) inputs.push_back(path);
    at = end + 1;
  }
  if (inputs.empty()) throw BadInput("--files-from " + line.files_from + ": names no file");
  return inputs;
}

void tokenize_as_bytes(const CommandLine& line) {
  const DocumentEnd end = line.document_end ? DocumentEnd::file : DocumentEnd::none;
  for (const std::string& input : inputs_of(line)) {
    const TextFileKind kind = text_file_kind(input);
    if (kind.json_lines || kind.compression != TextFileKind::Compression::none)
      throw BadInput(input + ": its bytes aren't those of its text; legal: --tokenizer, or text as it is");
  }
  const TokenizeResult result = tokenize_bytes({inputs_of(line), line.output, end});
  std::printf("%s: %lld tokens (uint16, byte vocabulary) of %lld bytes, %lld document ends\n", line.output.c_str(),
              static_cast<long long>(result.tokens), static_cast<long long>(result.bytes),
              static_cast<long long>(result.documents));
}

std::int32_t document_end_of(const CommandLine& line, const Tokenizer& tokenizer) {
  const std::string& given = line.document_end_token;
  if (given.empty() && !line.document_end) return -1;
  if (given.empty()) {
    if (tokenizer.document_end() >= 0) return tokenizer.document_end();
    throw BadInput("--document-end: " + tokenizer.name() +
                   " names no token that ends a document (eos_token of tokenizer_config.json beside it); legal: "
                   "--document-end-token with its text or id");
  }
  if (const std::int32_t id = tokenizer.id_of(given); id >= 0) return id;
  std::int64_t id = -1;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), id);
  if (error == std::errc() && end == given.data() + given.size() && id >= 0 && id < tokenizer.vocabulary())
    return static_cast<std::int32_t>(id);
  throw BadInput("--document-end-token " + shown(given) + ": no token of " + tokenizer.name() +
                 "; legal: a token's text, or an id from 0 to " + std::to_string(tokenizer.vocabulary() - 1));
}

OutputFormat format_of(const std::string& name) {
  return name == "uint16"     ? OutputFormat::uint16
         : name == "uint32"   ? OutputFormat::uint32
         : name == "npy"      ? OutputFormat::npy
         : name == "megatron" ? OutputFormat::megatron
         : name == "llm.c"    ? OutputFormat::llm_c
         : name == "ds"       ? OutputFormat::ds
                              : OutputFormat::smallest;
}

// Files that a tokenizer is read from, which the output must not take the place of.
std::vector<std::string> tokenizer_files(const CommandLine& line) {
  std::vector<std::string> files{line.tokenizer, line.pattern};
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(line.tokenizer, ignored)) files.push_back(entry.path());
  return files;
}

// --train-bpe: the output is the tokenizer's file.
void train_tokenizer(const CommandLine& line) {
  const std::string name = line.pattern.empty() ? "llama3" : line.pattern;
  const std::string known = tiktoken_pattern(name);
  BpeTrainer trainer(known.empty() ? read_text_file(name, 1 << 16, "--pattern") : known);
  TokenizeTextOptions options;
  options.inputs = inputs_of(line);
  options.field = line.field;
  check_output(options.inputs, line.output);
  const std::int64_t bytes = read_documents(options, [&](std::string_view text) { trainer.add(text); });
  if (bytes == 0) throw BadInput("tokenize: the text is empty");
  const OutputLock lock(line.output);
  const std::string text = trainer.train(line.train_bpe);
  const Tokenizer made(read_tokenizer_json(text, line.output));
  write_text_file(line.output, text);
  std::printf("%s: a byte-level BPE of %lld ids, trained on %lld bytes\n", line.output.c_str(),
              static_cast<long long>(made.vocabulary()), static_cast<long long>(bytes));
}

}  // namespace

void run_tokenize(const CommandLine& line) {
  if (!line.files_from.empty()) check_output({line.files_from}, line.output);
  if (line.threads > 0 && line.tokenizer.empty())
    throw BadInput("--threads needs --tokenizer: bytes are written, and a BPE is trained, by one thread");
  if (line.train_bpe > 0) return train_tokenizer(line);
  if (line.tokenizer.empty()) return tokenize_as_bytes(line);
  const Tokenizer tokenizer = Tokenizer::open(line.tokenizer, line.pattern);
  TokenizeTextOptions options;
  options.inputs = inputs_of(line);
  options.output = line.output;
  options.field = line.field;
  options.document_end = document_end_of(line, tokenizer);
  options.format = format_of(line.format);
  options.threads = line.threads;
  check_output(tokenizer_files(line), line.output);
  options.say = [](const std::string& text) { std::fprintf(stderr, "forge: tokenize: %s\n", text.c_str()); };
  const TokenizeTextResult result = tokenize_text(tokenizer, options);
  const long long ends = options.document_end >= 0 ? result.documents : 0;
  std::printf("%s: %lld tokens (%s, vocabulary %lld) of %lld bytes, %lld documents, %lld document ends\n",
              line.output.c_str(), static_cast<long long>(result.tokens), result.wide ? "uint32" : "uint16",
              static_cast<long long>(tokenizer.vocabulary()), static_cast<long long>(result.bytes),
              static_cast<long long>(result.documents), ends);
}

}  // namespace forge
