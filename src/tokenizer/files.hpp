#pragma once

#include <string>
#include <vector>

namespace forge {

// The file of a directory that defines its tokenizer, which Tokenizer::open reads: tokenizer.json, else
// tokenizer.model, else the only *.tiktoken, else the only *.model file. "": there is none. BadInput: the directory
// can't be read, or has several such files.
std::string main_tokenizer_file(const std::string& directory);

// Whether `path` is a directory that has such a file.
bool has_tokenizer(const std::string& path);

// The existing files of a tokenizer, sorted. Of a directory: the files that Tokenizer::open reads, and those that other
// programs need to read the same tokenizer with its template of chats (vocab.json, merges.txt, chat_template.jinja,
// tokenization_*.py, …). Of a file: itself, and the pattern beside a tiktoken file.
std::vector<std::string> tokenizer_files(const std::string& path);

}  // namespace forge
