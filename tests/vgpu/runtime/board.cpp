#include "board.hpp"

#include <algorithm>
#include <cstring>

namespace vgpu {

void Board::show(std::uint64_t comm, const std::string& what, const std::vector<BoardMember>& members) {
  const int shown = static_cast<int>(std::min<std::size_t>(members.size(), most));
  const bool same = communicator == comm && what.compare(0, sizeof text - 1, text) == 0 && count == shown &&
                    std::equal(members.begin(), members.begin() + shown, waits_for);
  if (!same) {
    version.fetch_add(1);
    communicator = comm;
    std::strncpy(text, what.c_str(), sizeof text - 1);
    count = shown;
    std::copy_n(members.begin(), shown, waits_for);
    version.fetch_add(1);
  }
  looked.fetch_add(1);
}

void Board::clear() {
  if (communicator == 0) return;
  version.fetch_add(1);
  communicator = 0;
  count = 0;
  version.fetch_add(1);
}

}  // namespace vgpu
