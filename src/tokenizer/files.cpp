#include "tokenizer/files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.hpp"
#include "core/file_errors.hpp"
#include "core/parse.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

// Beside the main files.
constexpr const char* tokenizer_file_names =
    "tokenizer.json tokenizer.model tokenizer_config.json added_tokens.json special_tokens_map.json vocab.json "
    "vocab.txt merges.txt chat_template.jinja chat_template.json";
// tiktoken.model, spiece.model, qwen.tiktoken and its pattern; code of a tokenizer of its own.
constexpr std::array tokenizer_endings = {".model", ".tiktoken", ".pattern"};

bool is_part(const std::string& name) {
  return has_word(tokenizer_file_names, name) ||
         std::any_of(tokenizer_endings.begin(), tokenizer_endings.end(),
                     [&](const char* ending) { return name.ends_with(ending); }) ||
         (name.starts_with("tokenization_") && name.ends_with(".py"));
}

// Of a directory, sorted.
template <class Takes>
std::vector<std::string> files_of(const std::string& directory, const Takes& takes) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    if (takes(at->path().filename().string()) && is_file(at->path().string())) found.push_back(at->path().string());
  if (error) throw BadInput("the tokenizer " + directory + ": " + error.message());
  std::sort(found.begin(), found.end());
  return found;
}

// The only file whose name ends so; "": there is none.
std::string only_file(const std::string& directory, const std::string& ending) {
  const std::vector<std::string> found =
      files_of(directory, [&](const std::string& name) { return name.ends_with(ending); });
  if (found.size() < 2) return found.empty() ? "" : found.front();
  throw BadInput("the tokenizer " + directory + ": has " + found[0] + " and " + found[1] + "; legal: the file itself");
}

}  // namespace

std::string main_tokenizer_file(const std::string& directory) {
  for (const char* name : {"/tokenizer.json", "/tokenizer.model"})
    if (is_file(directory + name)) return directory + name;
  const std::string tiktoken = only_file(directory, ".tiktoken");
  return tiktoken.empty() ? only_file(directory, ".model") : tiktoken;
}

bool has_tokenizer(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && !main_tokenizer_file(path).empty();
}

std::vector<std::string> tokenizer_files(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    std::vector<std::string> found;
    for (const std::string& file : {path, path + ".pattern"})
      if (is_file(file)) found.push_back(file);
    return found;
  }
  std::vector<std::string> found = files_of(path, is_part);
  // Further templates of chats stand in a directory of their own.
  if (const std::string more = path + "/additional_chat_templates"; fs::is_directory(more, ignored)) {
    const auto templates = files_of(more, [](const std::string& name) { return name.ends_with(".jinja"); });
    found.insert(found.end(), templates.begin(), templates.end());
  }
  return found;
}

}  // namespace forge
