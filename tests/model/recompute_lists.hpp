#pragma once

#include <vector>

#include "config/recompute.hpp"

namespace forge::test {

// The number-th list of parts that the model has, in turn through all of them but the empty one.
inline Recompute recompute_list(const ModelDeck& model, std::size_t number) {
  const unsigned all = parts_of(model).parts;
  std::vector<unsigned> lists;
  for (unsigned parts = 1; parts <= all; ++parts)
    if ((parts & ~all) == 0) lists.push_back(parts);
  return {lists[number % lists.size()]};
}

// Every policy of the model: none, each list of parts, whole blocks.
inline std::vector<Recompute> every_recompute(const ModelDeck& model) {
  std::vector<Recompute> list{Recompute::none, Recompute::full};
  for (std::size_t number = 0; number == 0 || recompute_list(model, number) != list[2]; ++number)
    list.push_back(recompute_list(model, number));
  return list;
}

}  // namespace forge::test
