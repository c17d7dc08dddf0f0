#pragma once

#include "model/parameter_lister.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/embedding.hpp.

// Two units: the tables of tokens and of learned positions.
template <class P>
struct EmbeddingParameters {
  View<P, 2> tokens;     // (V, C)
  View<P, 2> positions;  // (P, C), empty with rotary positions

  void list(ParameterLister& l) {
    const ModelSpec& s = l.spec;
    const std::string_view tokens_hf = l.hf("model.embed_tokens.weight", "transformer.wte.weight");
    const std::string_view positions_hf = l.hf("model.embed_positions.weight", "transformer.wpe.weight");
    if (l.kind == UnitKind::token_table)
      l.add(tokens, {{"tokens"}, {tokens_hf}, {s.V(), s.C()}, split_rows(), Initial::normal, l.matrix_std()});
    else
      l.add(positions,
            {{"positions"}, {positions_hf}, {s.options.max_positions, s.C()}, {}, Initial::normal, l.matrix_std()});
  }
};

// Workspace, forward and backward.
template <class T>
struct EmbeddingScratch {
  RowScratch<T> rows;

  void list(BufferLister& l) { rows.list_rows(l); }
};

// Which of the tables have gradients.
struct TrainedTables {
  bool tokens = true, positions = true;
};
// `positions`: with a table of positions, too.
void list_embedding(Segments& list, Pass pass, bool positions, TrainedTables trained = {});

}  // namespace forge
