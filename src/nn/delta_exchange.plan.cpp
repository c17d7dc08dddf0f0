#include "nn/delta_exchange.plan.hpp"

namespace forge {

ShortList<ConvPart, 3> conv_parts(const BufferContext& c, int cp_rank) {
  if (c.microbatch.cp == 1) return {{0, 0, c.spec.linear_channels()}};
  const DeltaShape s = delta_shape(c);
  const std::int64_t keys = s.key_heads * s.key_dim, values = s.value_heads * s.value_dim;
  const std::int64_t all_keys = keys * c.microbatch.cp;
  return {{0, cp_rank * keys, keys},
          {keys, all_keys + cp_rank * keys, keys},
          {2 * keys, 2 * all_keys + cp_rank * values, values}};
}

void list_delta_heads(Segments& list, std::int64_t columns, bool back) {
  const std::int64_t ranks = list.c.microbatch.cp, all = list.c.microbatch.rows_of_all(), moved = all * columns;
  if (ranks == 1) return;
  if (back) list.over_rows("rows_by_rank", all, columns, 1, 1);
  if (!back) list.move_rows("columns_to_blocks", 1, moved, moved);
  list.send(Group::cp, Collective::all_to_all, list.R * columns, list.c.precision.compute);
  if (back) list.move_rows("blocks_to_columns", 1, moved, moved);
  if (!back) list.over_rows("rows_by_position", all, columns, 1, 1);
}

}  // namespace forge
