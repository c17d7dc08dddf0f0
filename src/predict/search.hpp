#pragma once

#include <functional>
#include <vector>

#include "predict/outcome.hpp"

namespace forge {

struct SearchResult;

struct SearchOptions {
  int ranks = 1;
  int best = 10;        // to keep
  double seconds = 45;  // of a thread's processor time, after which no further layout is simulated
  int threads = 1;      // on which in_parallel() calls
  // Called now and then with a partial result: `left` counts the layouts to come, and steps of very many microbatches
  // stand among the best with times estimated from fewer.
  std::function<void(const SearchResult&)> tell = {};
};

struct SearchResult {
  std::vector<Outcome> best;  // that fit, by tokens a second
  std::int64_t layouts = 0;   // in the space
  std::int64_t without_room = 0, bounded = 0, simulated = 0, refused = 0;
  std::int64_t left = 0;  // neither bounded nor simulated when time was up
};

// The layouts of a deck's model and batch on so many ranks of a machine. A layout is left out where a bound of its
// memory is beyond the machine's, or where a bound of its time (a rank's computation and waits in its layers without
// bubble, its gathers or its reductions, or its time on a link) is above the best that were simulated. `resolved`:
// check_deck has completed its model; its own mesh doesn't matter.
SearchResult search(const Machine& machine, const Deck& resolved, const SearchOptions& options);

}  // namespace forge
