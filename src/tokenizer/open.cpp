#include <algorithm>
#include <filesystem>

#include "config/contents.hpp"
#include "config/path_hint.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "core/file_errors.hpp"
#include "core/parse.hpp"
#include "tokenizer/directory_tokens.hpp"
#include "tokenizer/files.hpp"
#include "tokenizer/readers.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_file_bytes = std::size_t{1} << 30, most_pattern_file_bytes = 1 << 16;

std::string read(const std::string& path, std::size_t most = most_file_bytes) {
  return read_text_file(path, most, "the tokenizer");
}

// A file that is none of a tokenizer's.
void check_contents(const std::string& text, const std::string& file) {
  constexpr std::size_t looked_at = 4096;
  const std::string head = text.substr(0, looked_at);
  std::string contents =
      head.find_first_not_of(" \t\r\n") == std::string::npos ? "empty" : known_foreign_contents(head);
  if (contents.empty()) contents = wide_text(head);
  if (!contents.empty())
    throw BadInput("the tokenizer " + file + ": is " + contents +
                   "; legal: a tokenizer.json, a SentencePiece model or a tiktoken file");
}

// A tiktoken file: of its first line, a word of base64 and a rank.
void check_tiktoken(const std::string& text, const std::string& file) {
  const std::string_view line =
      std::string_view(text).substr(0, std::min<std::size_t>(text.find_first_of("\r\n"), 4096));
  const std::size_t space = line.find(' ');
  std::int64_t rank = 0;
  const bool word =
      space != std::string_view::npos && space > 0 && space % 4 == 0 && reads_as(line.substr(space + 1), rank);
  if (!word)
    throw BadInput("the tokenizer " + file +
                   ": neither JSON nor a SentencePiece model, and its first line is none of a tiktoken file's (base64, "
                   "space, number); legal: a tokenizer.json, "
                   "a SentencePiece model or a tiktoken file");
}

std::string pattern_of(const std::string& path, const std::string& pattern) {
  if (const std::string known = tiktoken_pattern(pattern); !known.empty()) return known;
  const std::string beside = path + ".pattern";
  std::string text;
  if (!pattern.empty() && is_file(pattern))
    text = read(pattern, most_pattern_file_bytes);
  else if (pattern.empty() && is_file(beside))
    text = read(beside, most_pattern_file_bytes);
  else
    throw BadInput((pattern.empty() ? path + ": a tiktoken file holds no pattern, and " + beside + " isn't there"
                                    : "--pattern " + shown(pattern) + ": no name of a pattern and no file") +
                   "; legal: --pattern with a file or a name: " + tiktoken_pattern_names());
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

TokenizerParts read_json(const std::string& text, const std::string& file, const DirectoryConfig& beside) {
  nlohmann::json root = parse_json(text, file, tokenizer_json_limits);
  const nlohmann::json own = root.value("added_tokens", nlohmann::json());
  const bool rebuilt = adapt_to_class(beside, root);
  TokenizerParts parts = read_tokenizer_json(root, file);
  add_directory_tokens(beside, MainFile::json, rebuilt, own, parts);
  return parts;
}

TokenizerParts read_model(const std::string& text, const std::string& file, const DirectoryConfig& beside) {
  const bool llama = beside.tokenizer_class == "LlamaTokenizer";
  SentencePieceUse use;
  const std::string scheme = beside.prefix_scheme();
  if (llama)
    use = {false, scheme == "first"    ? PrependScheme::first
                  : scheme == "always" ? PrependScheme::always
                                       : PrependScheme::never};
  else if (beside.given && !beside.flag("legacy", true))
    use.prefix = PrependScheme::first;
  TokenizerParts parts = read_sentencepiece(text, file, use);
  add_directory_tokens(beside, MainFile::sentencepiece, llama, nullptr, parts);
  return parts;
}

// Where no file says it: the special token of the usual names, if there is just one.
std::string usual_token(const TokenizerParts& parts, std::initializer_list<const char*> names) {
  std::string found;
  for (const char* name : names) {
    const auto at = parts.ids.find(name);
    if (at == parts.ids.end() || static_cast<std::size_t>(at->second) >= parts.special.size() ||
        !parts.special[static_cast<std::size_t>(at->second)])
      continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found;
}

}  // namespace

Tokenizer Tokenizer::open(const std::string& path, const std::string& pattern) {
  std::error_code ignored;
  if (!fs::exists(path, ignored) && !path.empty())
    throw BadInput("the tokenizer " + path + ": No such file or directory" + path_hint(path));
  const bool directory = fs::is_directory(path, ignored);
  std::string file = path;
  if (directory) {
    file = main_tokenizer_file(path);
    if (file.empty())
      throw BadInput("the tokenizer " + path +
                     ": a directory without tokenizer.json, tokenizer.model and a .tiktoken file; legal: one of them");
  }
  std::string text = read(file);
  check_contents(text, file);
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  const bool json = begin != std::string::npos && text[begin] == '{';
  // A model's first field is its pieces: number 1, with a length.
  const bool sentencepiece = !text.empty() && text[0] == '\n';
  if (!json && !sentencepiece) check_tiktoken(text, file);
  if (!pattern.empty() && (json || sentencepiece))
    throw BadInput("--pattern " + shown(pattern) + ": " + file + " has its own; legal: for a tiktoken file");
  const std::string cut = json || sentencepiece ? "" : pattern_of(file, pattern);
  const DirectoryConfig beside = directory ? DirectoryConfig(fs::path(file).parent_path().string()) : DirectoryConfig();
  TokenizerParts parts = json            ? read_json(text, file, beside)
                         : sentencepiece ? read_model(text, file, beside)
                                         : read_tiktoken(text, file, cut);
  if (!json && !sentencepiece) add_directory_tokens(beside, MainFile::tiktoken, false, nullptr, parts);
  parts.digest = std::hash<std::string>()(text + '\n' + cut + '\n' + beside.text);
  if (parts.document_begin.empty() && json)
    parts.document_begin = usual_token(parts, {"<|begin_of_text|>", "<s>", "<bos>", "<｜begin▁of▁sentence｜>"});
  if (parts.document_end.empty() && json)
    parts.document_end = usual_token(
        parts, {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "<｜end▁of▁sentence｜>"});
  return Tokenizer(std::move(parts));
}

}  // namespace forge
