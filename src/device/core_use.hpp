#pragma once

#include <atomic>
#include <optional>
#include <thread>

namespace forge {

// Seconds that the calling thread was ready to run and waited for a core, which had other work; none where the system
// doesn't tell (/proc/thread-self/schedstat).
std::optional<double> seconds_without_core();

// Cores that a rank may use, of a node that has so many ranks: less than one where there are more ranks than cores.
double cores_of_rank(int ranks_of_node);

// For as long as it lives, threads of OpenMP that wait for each other go to sleep instead of trying again for 3 ms.
// Where cores have other work, those that try again take the time of those that they wait for: with two threads on two
// busy cores a step took ten times as long. On idle cores loops of some ten microseconds are slower by a fifth.
//
// GNU's library does so of itself as soon as it has made more threads than there are cores: here by a team that does
// nothing.
class ShortWaits {
 public:
  ShortWaits();
  ~ShortWaits();

 private:
  std::atomic<bool> ends_{false};
  std::thread team_;
};

}  // namespace forge
