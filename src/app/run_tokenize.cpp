#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "app/verbs.hpp"
#include "config/byte_vocabulary.hpp"
#include "config/output_lock.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/parse.hpp"
#include "text/resumable_tokens.hpp"
#include "text/text_file.hpp"
#include "text/text_tree.hpp"
#include "text/tokenize.hpp"
#include "text/tokenize_text.hpp"
#include "tokenizer/files.hpp"
#include "tokenizer/readers.hpp"
#include "tokenizer/train_bpe.hpp"

namespace forge {

namespace {

void tell(const std::string& text) {
  std::fprintf(stderr, "forge: tokenize: %s\n", text.c_str());
}

// The paths of the command line, then those that --files-from names.
std::vector<std::string> paths_of(const CommandLine& line) {
  constexpr std::size_t most_list_bytes = std::size_t{1} << 30;
  std::vector<std::string> inputs = line.inputs;
  if (line.files_from.empty()) return inputs;
  const std::string text = read_text_file(line.files_from, most_list_bytes, "--files-from");
  const char separator = text.find('\0') == std::string::npos ? '\n' : '\0';
  for (std::string_view path : parts_of(text, separator)) {
    // A list from Windows ends its lines with a carriage return too.
    if (separator == '\n' && path.ends_with('\r')) path.remove_suffix(1);
    if (!path.empty()) inputs.emplace_back(path);
  }
  if (inputs.empty()) throw BadInput("--files-from " + line.files_from + ": names no file");
  return inputs;
}

// The same, with the texts of folders in their place.
std::vector<std::string> inputs_of(const CommandLine& line) {
  const std::vector<std::string> endings =
      line.endings.empty() ? std::vector<std::string>() : read_endings(line.endings);
  std::vector<std::string> inputs;
  bool folders = false;
  for (std::string& path : paths_of(line)) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
      inputs.push_back(std::move(path));
      continue;
    }
    folders = true;
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    const TextTree tree = text_tree(path, endings);
    tell(tree.summary);
    inputs.insert(inputs.end(), tree.files.begin(), tree.files.end());
  }
  if (!folders && !line.endings.empty()) throw BadInput("--ext " + line.endings + " needs a folder among the texts");
  return inputs;
}

void check_list(const CommandLine& line) {
  if (!line.files_from.empty()) check_output({line.files_from}, line.output);
}

// More of it than a slip of a pen here and there says that it is no text, or one in another encoding.
void warn_of(const IllFormedBytes& ill_formed, const char* what_becomes_of_them) {
  constexpr double least_fraction = 0.01;
  const double fraction =
      ill_formed.of > 0 ? static_cast<double>(ill_formed.bytes) / static_cast<double>(ill_formed.of) : 0;
  if (fraction < least_fraction) return;
  std::fprintf(stderr,
               "forge: tokenize: warning: %.1f %% of the bytes are no UTF-8, the first in %s; they %s; iconv turns "
               "other encodings into UTF-8, and binary data is no text\n",
               100 * fraction, ill_formed.first.c_str(), what_becomes_of_them);
}

// The lines of a deck that go with a token file; `end` below 0: it has no ends of documents.
void print_deck_lines(const CommandLine& line, const std::string& dtype, std::int64_t vocabulary, std::int64_t end) {
  std::printf("for the deck:\n  model: {vocabulary: %lld%s%s}\n  data: {files: [%s]%s%s%s}\n",
              static_cast<long long>(vocabulary), line.tokenizer.empty() ? "" : ", tokenizer: ",
              line.tokenizer.empty() ? "" : yaml_text(line.tokenizer).c_str(), yaml_text(line.output).c_str(),
              dtype.empty() ? "" : ", dtype: ", dtype.c_str(),
              end < 0 ? "" : (", document_end_token: " + std::to_string(end)).c_str());
}

void tokenize_as_bytes(const CommandLine& line) {
  const DocumentEnd end = line.document_end ? DocumentEnd::file : DocumentEnd::none;
  const std::vector<std::string> inputs = inputs_of(line);
  for (const std::string& input : inputs) {
    const TextFileKind kind = TextFile(input).kind();
    if (kind.compression != TextFileKind::Compression::none)
      throw BadInput(input + ": is compressed, and of bytes only plain text is read; legal: --tokenizer, or " +
                     (kind.compression == TextFileKind::Compression::gzip ? "gunzip" : "unzstd") + " it first");
    if (kind.json_lines)
      throw BadInput(input + ": has lines of JSON, of which the bytes have the braces and the keys too; legal: " +
                     "--tokenizer, or text as it is");
  }
  const TokenizeResult result = tokenize_bytes({inputs, line.output, end});
  warn_of(result.ill_formed, "stay as they are");
  std::printf("%s: %s (uint16, byte vocabulary) of %s, %s\n", line.output.c_str(),
              counted(result.tokens, "token").c_str(), counted(result.bytes, "byte").c_str(),
              counted(result.documents, "document end").c_str());
  print_deck_lines(line, "uint16", byte_vocabulary + (line.document_end ? 1 : 0),
                   line.document_end ? byte_document_end : -1);
}

// The id that stands before or behind each document; -1: none.
struct DocumentToken {
  const char *option, *verb, *name;  // --document-end, "ends", eos_token of tokenizer_config.json
  bool wanted;
  const std::string& given;  // its text or id; "": the tokenizer's own
  std::int32_t own;          // -1: the tokenizer names none

  std::int32_t id(const Tokenizer& tokenizer) const {
    if (given.empty() && !wanted) return -1;
    if (given.empty()) {
      if (own >= 0) return own;
      throw BadInput(std::string(option) + ": " + tokenizer.name() + " names no token that " + verb + " a document (" +
                     name + " of tokenizer_config.json beside it); legal: " + option + "-token with its text or id");
    }
    if (const std::int32_t found = tokenizer.id_of(given); found >= 0) return found;
    std::int64_t found = -1;
    if (reads_as(given, found) && found >= 0 && found < tokenizer.vocabulary()) return static_cast<std::int32_t>(found);
    throw BadInput(std::string(option) + "-token " + shown(given) + ": no token of " + tokenizer.name() +
                   "; legal: a token's text, or an id from 0 to " + std::to_string(tokenizer.vocabulary() - 1));
  }
};

std::int32_t document_begin_of(const CommandLine& line, const Tokenizer& tokenizer) {
  return DocumentToken{"--document-begin",        "begins", "bos_token", line.document_begin, line.document_begin_token,
                       tokenizer.document_begin()}
      .id(tokenizer);
}

std::int32_t document_end_of(const CommandLine& line, const Tokenizer& tokenizer) {
  return DocumentToken{"--document-end",        "ends", "eos_token", line.document_end, line.document_end_token,
                       tokenizer.document_end()}
      .id(tokenizer);
}

// Files that a tokenizer is read from, which the output must not take the place of.
std::vector<std::string> files_of_tokenizer(const CommandLine& line) {
  std::vector<std::string> files = tokenizer_files(line.tokenizer);
  files.push_back(line.tokenizer);
  if (!line.pattern.empty()) files.push_back(line.pattern);
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
  const OutputLock lock(line.output);
  remove_notes(line.output);
  IllFormedBytes ill_formed;
  const std::int64_t bytes = read_documents(
      options, [&](std::string_view text) { trainer.add(text); }, &ill_formed);
  if (bytes == 0) throw BadInput("tokenize: the text is empty");
  warn_of(ill_formed, "became U+FFFD");
  const std::string text = trainer.train(line.train_bpe);
  const Tokenizer made(read_tokenizer_json(text, line.output));
  write_text_file(line.output, text);
  const bool fewer = made.vocabulary() < line.train_bpe;
  std::printf(
      "%s: a byte-level BPE of %lld ids%s, trained on %s\nfor the deck:\n  model: {vocabulary: %lld, "
      "tokenizer: %s}\n",
      line.output.c_str(), static_cast<long long>(made.vocabulary()),
      fewer ? (" (of " + std::to_string(line.train_bpe) + " asked for: no more pairs come twice)").c_str() : "",
      counted(bytes, "byte").c_str(), static_cast<long long>(made.vocabulary()), yaml_text(line.output).c_str());
}

}  // namespace

void run_tokenize(const CommandLine& line) {
  check_list(line);
  if (line.threads > 0 && line.tokenizer.empty())
    throw BadInput("--threads needs --tokenizer: bytes are written, and a BPE is trained, by one thread");
  if (line.train_bpe > 0) return train_tokenizer(line);
  if (line.tokenizer.empty()) return tokenize_as_bytes(line);
  const Tokenizer tokenizer = Tokenizer::open(line.tokenizer, line.pattern);
  TokenizeTextOptions options;
  options.inputs = inputs_of(line);
  options.output = line.output;
  options.field = line.field;
  options.document_begin = document_begin_of(line, tokenizer);
  options.document_end = document_end_of(line, tokenizer);
  const auto& words = output_format_words;
  options.format = static_cast<OutputFormat>(std::find(words.begin(), words.end(), line.format) - words.begin());
  options.threads = line.threads;
  check_output(files_of_tokenizer(line), line.output);
  options.say = tell;
  const TokenizeTextResult result = tokenize_text(tokenizer, options);
  warn_of(result.ill_formed, "became U+FFFD");
  const std::int64_t ends = options.document_end >= 0 ? result.documents : 0;
  const std::string begins =
      options.document_begin >= 0 ? ", " + counted(result.documents, "document begin") : std::string();
  std::printf("%s: %s (%s, vocabulary %lld) of %s, %s%s, %s\n", line.output.c_str(),
              counted(result.tokens, "token").c_str(), result.wide ? "uint32" : "uint16",
              static_cast<long long>(tokenizer.vocabulary()), counted(result.bytes, "byte").c_str(),
              counted(result.documents, "document").c_str(), begins.c_str(), counted(ends, "document end").c_str());
  const bool raw = options.format != OutputFormat::npy && options.format != OutputFormat::megatron &&
                   options.format != OutputFormat::llm_c;
  print_deck_lines(line, !raw ? "" : result.wide ? "uint32" : "uint16", tokenizer.vocabulary(), options.document_end);
}

}  // namespace forge
