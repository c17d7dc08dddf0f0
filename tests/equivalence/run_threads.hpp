#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "enumerate.hpp"
#include "layout_run.hpp"

namespace forge::test {

// A checked deck on as many threads as it has ranks.
LayoutResult run_threads(const Deck& deck, const RunOptions& options);

// initial_tensors() on as many threads as the deck has ranks.
Tensors initial_tensors(const Deck& deck);

// The deck of the same model, data and training on one rank, without any choice of layout.
Deck one_rank(const Deck& deck);

// One rank's results, each computed once and checked to be worth comparing with. May be used by several threads.
class References {
 public:
  // `deck` and its `train_steps` as for run_layout().
  const LayoutResult& of(const Deck& deck, std::int64_t train_steps);

 private:
  struct Entry {
    std::once_flag once;
    LayoutResult result;
  };
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
};

// Runs check(case) for all cases, a few at a time: ranks that are threads wait for each other more than they compute.
// A case fails with the text that `check` returns or throws; after the first few failures the rest is left out. Another
// number of cases than `expected`, which the test has written down, is a failure too. Returns the failures, one line
// each.
std::string failures_of(const std::vector<LayoutCase>& cases, std::size_t expected,
                        const std::function<std::string(const LayoutCase&)>& check);

// The usual question of tests: gradients of step 1 equal to one rank's; where train_steps > 0, training too, to
// `training_bound`.
std::string equals_one_rank(const Deck& deck, References& references, std::int64_t train_steps = 0,
                            double training_bound = 0);

}  // namespace forge::test
