#include "core/left_over.hpp"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace forge {

namespace {

// A terminate handler reaches no object.
std::mutex& mutex() {
  static std::mutex the_mutex;
  return the_mutex;
}
std::vector<std::string>& paths() {
  static std::vector<std::string> all;
  return all;
}

}  // namespace

LeftOver::LeftOver(std::string path) : path_(std::move(path)) {
  const std::lock_guard lock(mutex());
  paths().push_back(path_);
}

LeftOver::~LeftOver() {
  const std::lock_guard lock(mutex());
  const auto mine = std::find(paths().begin(), paths().end(), path_);
  if (mine != paths().end()) paths().erase(mine);
}

void remove_left_overs() {
  const std::lock_guard lock(mutex());
  for (const std::string& path : paths()) ::unlink(path.c_str());
  paths().clear();
}

}  // namespace forge
