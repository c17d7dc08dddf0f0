#pragma once

#include "model/parameters.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/embedding.hpp.

Unit token_table_unit(const ModelSpec& spec);
Unit position_table_unit(const ModelSpec& spec);

// Workspace, forward and backward.
template <class T>
struct EmbeddingScratch {
  RowScratch<T> rows;

  void list(BufferLister& l) { rows.list_rows(l); }
};

void add_embedding_sends(Sends& sends, Pass pass);

}  // namespace forge
