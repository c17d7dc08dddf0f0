#include "config/path_hint.hpp"

#include <algorithm>
#include <filesystem>

#include "config/text.hpp"
#include "core/parse.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

// "scheme://…", and "https:/…", which is left where a path was made of it.
bool is_url(const std::string& path) {
  const std::size_t colon = path.find(":/");
  return colon != std::string::npos && colon > 1 && is_ascii_letter(path[0]) &&
         std::all_of(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(colon), [](char c) {
           return is_ascii_letter(c) || is_ascii_digit(c) || c == '+' || c == '-' || c == '.';
         });
}

bool is_pattern(const std::string& path) {
  if (path.find_first_of("*?") != std::string::npos) return true;
  const auto pair = [&](char open, char close) {
    const std::size_t begin = path.find(open);
    return begin != std::string::npos && path.find(close, begin) != std::string::npos;
  };
  return pair('[', ']') || pair('{', '}');
}

// "owner/name" or "name", as the hub writes them, of which nothing looks like a file's name: "gpt2", "Qwen/Qwen2.5-7B".
bool is_hub_name(const std::string& path) {
  const std::size_t slash = path.find('/');
  if (path.find('/', slash == std::string::npos ? slash : slash + 1) != std::string::npos) return false;
  const std::string owner = slash == std::string::npos ? "" : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const auto good = [](const std::string& part) {
    return !part.empty() && (is_ascii_letter(part[0]) || is_ascii_digit(part[0])) &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return is_ascii_letter(c) || is_ascii_digit(c) || c == '-' || c == '_' || c == '.';
           });
  };
  if (!good(name) || (slash != std::string::npos && !good(owner))) return false;
  // An ending has letters only, up to a digit at its end; a version ("-0.5B", ".1-8B") begins with a digit.
  const std::size_t dot = name.rfind('.');
  if (dot != std::string::npos && dot + 1 < name.size() && is_ascii_letter(name[dot + 1])) return false;
  std::error_code ignored;
  return owner.empty() || !fs::exists(owner, ignored);
}

}  // namespace

std::string unexpanded(const std::string& path) {
  std::error_code error;
  if (path.empty() || fs::exists(path, error)) return "";
  if (path[0] == '~') return "~ is not expanded here; legal: the home directory's own path";
  const std::size_t dollar = path.find('$');
  const char next = dollar == std::string::npos || dollar + 1 == path.size() ? ' ' : path[dollar + 1];
  if (next == '{' || next == '_' || is_ascii_letter(next))
    return "variables are not expanded here; legal: the path itself";
  if (path == "-") return "- is no standard input or output; legal: a path";
  return is_url(path) ? "it is a URL; legal: a path" : "";
}

std::string near_file(const std::string& path) {
  constexpr int most_entries = 10000;
  std::string_view name = trimmed(path);
  while (name.ends_with('/')) name.remove_suffix(1);
  const std::size_t slash = name.rfind('/');
  const std::string folder(name.substr(0, slash == std::string_view::npos ? 0 : slash + 1));
  const std::string meant = lower_case(std::string(name.substr(folder.size())));
  if (meant.empty() || meant.size() > 64) return "";
  std::string best;
  std::size_t least = meant.size() < 6 ? 2 : 3;
  int entries = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (++entries > most_entries) break;
    const std::string there = entry->path().filename().string(), own = lower_case(there);
    if (own[0] == '.' && meant[0] != '.') continue;
    const bool stem = lower_case(fs::path(own).stem().string()) == lower_case(fs::path(meant).stem().string());
    const std::size_t distance = own == meant         ? 0
                                 : stem               ? 1
                                 : own[0] == meant[0] ? edit_distance(own, meant)
                                                      : meant.size() + 64;
    if (distance < least || (distance == least && !best.empty() && there < best)) least = distance, best = there;
  }
  return best.empty() ? "" : folder + best;
}

std::string path_hint(const std::string& path, PathUse use) {
  std::error_code error;
  if (path.empty()) return "; its name is empty";
  if (fs::exists(path, error)) return "";
  if (is_url(path)) return "; URLs are not fetched; legal: a path, so download it first";
  if (const std::string text = unexpanded(path); !text.empty()) return "; " + text;
  if (is_pattern(path)) return "; patterns are not expanded here; legal: the name of each file";
  if (fs::is_symlink(fs::symlink_status(path, error)))
    return "; it is a link to " + fs::read_symlink(path, error).string() + ", which isn't there";
  std::string hint;
  if (path[0] != '/') {
    const std::string here = fs::current_path(error).string();
    hint = "; looked for in the working directory, " + (here.empty() ? "which is gone: cd to one that is there" : here);
  }
  if (const std::string near = near_file(path); !near.empty()) hint += "; did you mean " + near + "?";
  if (use == PathUse::model && is_hub_name(path))
    hint += "; names of the Hugging Face hub are not resolved: `hf download " + path + "` prints the directory to give";
  return hint;
}

}  // namespace forge
