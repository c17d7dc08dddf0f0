#pragma once

#include <string>
#include <vector>

namespace forge {

// The files of a folder that are taken as texts.
struct TextTree {
  std::vector<std::string> files;  // sorted by their paths
  std::string summary;             // how many of which endings are taken, and how many are left out
};

// All files below a folder whose names have one of the endings ("txt", any case; "all": whatever they have), as they
// are or compressed (.gz, .gzip, .zst, .zstd behind it). Without endings: the usual ones of texts and JSON lines, txt,
// text, md, rst, jsonl, ndjson, jl. Files and folders whose names begin with a dot are left out, and so are links to
// folders; links to files are taken. BadInput: a folder that can't be read, or no such file.
TextTree text_tree(const std::string& folder, const std::vector<std::string>& endings);

// "txt,md" or ".txt,.md" as endings. BadInput: an empty one.
std::vector<std::string> read_endings(const std::string& list);

}  // namespace forge
