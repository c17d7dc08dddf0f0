#include "core/left_over.hpp"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <vector>

namespace forge {

namespace {

// A terminate handler reaches no object.
std::mutex living_mutex;
std::vector<std::string> living;  // paths, under it

}  // namespace

LeftOver::LeftOver(std::string path) : path_(std::move(path)) {
  const std::lock_guard lock(living_mutex);
  living.push_back(path_);
}

LeftOver::~LeftOver() {
  const std::lock_guard lock(living_mutex);
  const auto mine = std::find(living.begin(), living.end(), path_);
  if (mine != living.end()) living.erase(mine);
}

void remove_left_overs() {
  const std::lock_guard lock(living_mutex);
  std::error_code ignored;
  for (const std::string& path : living) std::filesystem::remove_all(path, ignored);
  living.clear();
}

}  // namespace forge
