#pragma once

#include <map>
#include <tuple>

#include "plan/tasks.hpp"

namespace forge {

// Values of the passes of a rank's layers, worked out once for all microbatches: they are alike.
template <class Value>
class PassMemo {
 public:
  // make(): the value of a pass that is asked for the first time.
  template <class Make>
  const Value& of(const LayerPass& p, Make make) {
    const std::tuple key(p.layer, p.pass, p.recompute);
    const auto found = known_.find(key);
    return found != known_.end() ? found->second : known_.emplace(key, make()).first->second;
  }

 private:
  std::map<std::tuple<const StageLayer*, Pass, bool>, Value> known_;
};

}  // namespace forge
