#include "config/shared_files.hpp"

#include <cstdlib>
#include <filesystem>
#include <set>

#include "config/text.hpp"
#include "core/error.hpp"

namespace forge {

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> roots() {
  std::vector<fs::path> list{"."};
  if (const char* root = std::getenv("FORGE_ROOT"); root && *root) list.emplace_back(root);
  std::error_code none;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", none); !program.empty()) {
    const fs::path folder = program.parent_path();             // build/cpu, or bin
    list.push_back(folder.parent_path().parent_path());        // the source tree
    list.push_back(folder.parent_path() / "share" / "forge");  // of an installation
  }
  return list;
}

}  // namespace

std::vector<std::string> shared_folders(const std::string& name) {
  std::vector<std::string> list;
  std::set<fs::path> seen;
  for (const fs::path& root : roots()) {
    std::error_code none;
    const fs::path folder = root == "." ? fs::path(name) : root / name;
    if (fs::is_directory(folder, none) && seen.insert(fs::canonical(folder, none)).second)
      list.push_back(folder.string());
  }
  return list;
}

std::string shared_names(const std::string& name) {
  std::set<std::string> names;
  for (const std::string& folder : shared_folders(name))
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".yaml") names.insert(entry.path().stem().string());
  return names.empty() ? "none" : joined({names.begin(), names.end()});
}

std::string shared_file(const std::string& name, const char* what, const std::string& folder) {
  std::error_code none;
  const bool ending = fs::path(name).extension() == ".yaml";
  if (name.find('/') != std::string::npos || (ending && fs::exists(name, none))) return name;
  std::string stem = ending ? fs::path(name).stem().string() : name;
  for (const bool exact : {true, false}) {
    for (const std::string& place : shared_folders(folder))
      if (const fs::path file = fs::path(place) / (stem + ".yaml"); fs::exists(file)) return file.string();
    if (exact) stem = lower_case(stem);
  }
  if (ending || fs::is_regular_file(name, none)) return name;
  throw BadInput("no " + std::string(what) + " " + shown(name) + "; legal: a file, or of " + folder + ": " +
                 shared_names(folder));
}

}  // namespace forge
