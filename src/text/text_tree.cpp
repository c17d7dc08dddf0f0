#include "text/text_tree.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>

#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/parse.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

constexpr std::array usual_endings = {"txt", "text", "md", "rst", "jsonl", "ndjson", "jl"};
constexpr std::size_t most_shown_endings = 6;

// "txt" of "a.txt" and of "a.TXT.gz"; "": there is none.
std::string ending_of(const std::string& file) {
  std::string name = lower_case(file);
  for (const char* compressed : {".gz", ".gzip", ".zst", ".zstd"})
    if (const std::string end = compressed; name.ends_with(end) && name.find('.') < name.size() - end.size()) {
      name.resize(name.size() - end.size());
      break;
    }
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos || dot + 1 == name.size() ? "" : name.substr(dot + 1);
}

using Counts = std::map<std::string, std::int64_t>;

std::int64_t sum(const Counts& counts) {
  std::int64_t all = 0;
  for (const auto& [ending, count] : counts) all += count;
  return all;
}

// "1917 .rst, 2 without an ending": the most frequent ones.
std::string shown_counts(const Counts& counts) {
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [ending, count] : counts) sorted.emplace_back(-count, ending);
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> parts;
  std::int64_t others = 0;
  for (const auto& [count, ending] : sorted) {
    if (parts.size() == most_shown_endings)
      others -= count;
    else
      parts.push_back(std::to_string(-count) + (ending.empty() ? " without an ending" : " ." + ending));
  }
  if (others > 0) parts.push_back(std::to_string(others) + " others");
  return joined(parts);
}

std::string most_frequent(const Counts& counts) {
  std::string best;
  std::int64_t most = 0;
  for (const auto& [ending, count] : counts)
    if (!ending.empty() && count > most) best = ending, most = count;
  return best;
}

struct Walk {
  std::vector<std::string> files;
  Counts taken, left;
  std::int64_t hidden = 0;
};

Walk walk(const std::string& folder, const std::vector<std::string>& endings) {
  Walk found;
  const bool all = std::find(endings.begin(), endings.end(), "all") != endings.end();
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (name.starts_with('.')) {
      ++found.hidden;
      at.disable_recursion_pending();
      continue;
    }
    if (!at->is_regular_file(ignored)) {
      found.hidden += at->is_directory(ignored) && !at->is_symlink(ignored) ? 0 : 1;
      continue;
    }
    const std::string ending = ending_of(name);
    const bool takes = all || std::find(endings.begin(), endings.end(), ending) != endings.end();
    ++(takes ? found.taken : found.left)[ending];
    if (takes) found.files.push_back(at->path().string());
  }
  if (error) throw BadInput("the folder " + folder + ": " + error.message());
  std::sort(found.files.begin(), found.files.end());
  return found;
}

}  // namespace

TextTree text_tree(const std::string& folder, const std::vector<std::string>& given) {
  const std::vector<std::string> endings =
      given.empty() ? std::vector<std::string>(usual_endings.begin(), usual_endings.end()) : given;
  Walk found = walk(folder, endings);
  const std::string other = most_frequent(found.left);
  const std::string advice = other.empty() ? "" : "; --ext " + other + " takes those";
  if (found.files.empty())
    throw BadInput("the folder " + folder + ": of its " + counted(sum(found.left), "file") +
                   " none has one of the endings " + joined(endings) +
                   (found.left.empty() ? "" : "; it has " + shown_counts(found.left)) + advice);
  TextTree tree;
  tree.files = std::move(found.files);
  tree.summary = folder + ": takes " + std::to_string(tree.files.size()) + " of " +
                 counted(sum(found.taken) + sum(found.left), "file") + ", " + shown_counts(found.taken);
  if (!found.left.empty()) tree.summary += "; leaves out " + shown_counts(found.left) + advice;
  if (found.hidden > 0)
    tree.summary +=
        "; leaves out hidden files and folders, links to folders and devices: " + std::to_string(found.hidden);
  return tree;
}

std::vector<std::string> read_endings(const std::string& list) {
  std::vector<std::string> endings;
  for (const std::string_view part : parts_of(list, ',')) {
    std::string ending = lower_case(std::string(trimmed(part)));
    if (ending.starts_with("*.")) ending.erase(0, 1);
    if (ending.starts_with('.')) ending.erase(0, 1);
    if (ending.empty() || ending.find_first_of("/*?") != std::string::npos)
      throw BadInput("--ext " + shown(list) + ": legal are endings of files, as in txt,md, or all");
    endings.push_back(ending);
  }
  return endings;
}

}  // namespace forge
