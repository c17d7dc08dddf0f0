#pragma once

#include <cstdint>
#include <optional>

#include "config/report.hpp"
#include "layout/mesh_shape.hpp"

namespace forge {

// Checks a deck whose model, mesh and train sections are legal one by one for the number of ranks: the world's product
// (resolves mesh.dp_shard and etp), the global batch, and the numbers that tp and cp must divide. Reports every
// violated equation with the nearest legal values. Returns the mesh where the world fits it.
//   tp  divides model.heads and model.ffn; divides model.kv_heads or is a multiple of it; divides the rows of a
//       microbatch, microbatch_sequences · sequence_tokens / cp, which sequence parallelism cuts
//   cp  2 cp divides sequence_tokens: a rank has two blocks of a sequence, so that all have the same work; with
//       all_to_all, cp divides the query heads of a tp rank; with gated DeltaNet its key heads
std::optional<MeshShape> check_layout(Deck& deck, std::int64_t ranks, Report& report);
// The same check for transposed copies: a rank's block of a sequence has whole groups of the rows that share scales.
void check_transposed_groups(const Deck& deck, Report& report);

}  // namespace forge
