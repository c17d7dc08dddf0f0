#include "nn/head.plan.hpp"

namespace forge {

void add_head_sends(Sends& sends) {
  const BufferContext& c = sends.c;
  sends.rows(Collective::all_gather);
  for (std::int64_t begin = 0; begin < c.microbatch.rows(); begin += c.head_chunk_rows)
    sends.add(Group::tp, Collective::all_gather, 3 * std::min(c.head_chunk_rows, c.microbatch.rows() - begin),
              c.precision.accumulate);
  sends.rows(Collective::reduce_scatter);
}

}  // namespace forge
