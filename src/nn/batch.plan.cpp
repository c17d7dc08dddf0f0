#include "nn/batch.plan.hpp"

namespace forge {

namespace {

constexpr Reader F = Reader::forward, B = Reader::backward_input, W = Reader::backward_weight;

}  // namespace

void Batch::list(BufferLister& l) {
  l.add(tokens, "tokens", l.R, 1, W);
  l.add(labels, "labels", l.R, 1, F);
  l.add(positions, "positions", l.R, 1, B);
  l.add(documents, "documents", l.R, 1, B);
  l.add(samples, "samples", l.R, 1, B);
  l.add(token_order, "rows by token", l.R, 1, W);
  if (!l.spec.rope()) l.add(position_order, "rows by position", l.S, 1, W);
  if (l.c.microbatch.cp == 1) return;
  const std::int64_t all = l.c.microbatch.rows_of_all();
  l.add(key_positions, "positions of keys", all, 1, B);
  l.add(key_documents, "documents of keys", all, 1, B);
  if (l.c.cp_method == CpMethod::all_to_all) l.add(key_samples, "samples of keys", all, 1, B);
}

void Batch::list_shifted(BufferLister& l) {
  l.add(tokens, "shifted tokens", l.R, 1, B);
  l.add(labels, "shifted labels", l.R, 1, F);
  l.add(token_order, "rows by shifted token", l.R, 1, B);
}

}  // namespace forge
