#pragma once

#include "optim/update.hpp"
#include "optim/update_tools.hpp"

namespace forge {

// A unit whose matrices have second moments by row and by column, in an update.
template <class T>
struct FactoredArgs {
  using A = acc_t<T>;
  const RankUnit<T>& unit;
  const FactoredUnit& plan;
  const FactoredBuffers& buffers;
  View<A, 1> moments;  // of rows and columns, of this unit

  // Second moments of a part of a vector.
  A* own_moments(const FactoredPart& part) const {
    return static_cast<A*>(static_cast<void*>(unit.optimizer[0].at(part.at)));
  }
};

// A rank's part of the sums of squares of gradients and weights; moments from the sums over all ranks; its part of the
// squares of the updates; the updates (adafactor.cpp).
template <class T>
void add_squares(Stream& stream, const FactoredArgs<T>& run);
template <class T>
void update_moments(Stream& stream, const Update& update, const FactoredArgs<T>& run);
template <class T>
void add_updates(Stream& stream, const Update& update, const FactoredArgs<T>& run);
template <class T>
void apply_updates(Stream& stream, const Update& update, const FactoredArgs<T>& run);

}  // namespace forge
