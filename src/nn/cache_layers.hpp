#pragma once

#include "core/to_size.hpp"
#include "nn/context.hpp"
#include "nn/generation.plan.hpp"

namespace forge {

// Hands the memory of a generation to the layers that a stage has, one behind the other.
template <class T>
class CacheLayers {
 public:
  // keys, values: of all of its layers with attention; delta: of those with gated DeltaNet.
  CacheLayers(const ModelSpec& spec, const KeptShare& share, View<T, 2> keys, View<T, 2> values,
              const TextStates<T>& delta, KvCache<T>& cache)
      : spec_(spec), share_(share), keys_(keys), values_(values), delta_(delta), cache_(cache) {
    for (auto* views : {&cache.k, &cache.v, &cache.tails}) views->resize(to_size(spec.L()));
    cache.states.resize(to_size(spec.L()));
  }

  void add(std::int64_t layer) {
    const auto l = to_size(layer);
    if (spec_.linear(layer)) {
      cache_.states[l] = part_of_layer(delta_.states, linear_, share_.linear);
      cache_.tails[l] = part_of_layer(delta_.tails, linear_++, share_.linear);
    } else {
      cache_.k[l] = part_of_layer(keys_, attention_, share_.attention);
      cache_.v[l] = part_of_layer(values_, attention_++, share_.attention);
    }
  }

 private:
  template <class P>
  static View<P, 2> part_of_layer(const View<P, 2>& all, std::int64_t number, std::int64_t layers) {
    const std::int64_t rows = all.rows() / layers;
    return all.slice(number * rows, (number + 1) * rows);
  }

  const ModelSpec& spec_;
  const KeptShare share_;
  const View<T, 2> keys_, values_;
  const TextStates<T> delta_;
  KvCache<T>& cache_;
  std::int64_t attention_ = 0, linear_ = 0;
};

}  // namespace forge
