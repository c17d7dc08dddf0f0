#pragma once

#include <algorithm>

#include "parallel/executor.hpp"

namespace forge {

// One pass over a chunk's units, in their order of use: hands out weights and gathers the next unit meanwhile. A unit
// may stand in the order more than once.
template <class T>
class Executor<T>::Pass {
 public:
  Pass(Executor& executor, const std::vector<std::size_t>& order) : e_(executor), order_(order), at_(order.begin()) {}

  const T* use(std::size_t unit) {
    const T* weights = e_.gather_.use(e_.context_.stream, unit);
    const auto here = std::find(at_, order_.end(), unit);
    if (here == order_.end()) return weights;
    at_ = here + 1;
    if (at_ != order_.end()) e_.gather_.prefetch(e_.context_.stream, *at_);
    return weights;
  }
  void release(std::size_t unit) { e_.gather_.release(e_.context_.stream, unit); }

 private:
  Executor& e_;
  const std::vector<std::size_t>& order_;
  std::vector<std::size_t>::const_iterator at_;  // behind the last one used
};

}  // namespace forge
