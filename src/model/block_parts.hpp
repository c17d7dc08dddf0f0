#pragma once

#include <algorithm>
#include <vector>

#include "core/partials.hpp"
#include "model/buffers.hpp"

// What the lists of a block's parts share: buffers.cpp puts them together.

namespace forge {

// Shorthands of one context: buffers of compute type, statistics of accumulation type.
struct BufferMaker {
  const BufferContext& c;
  const ModelSpec& s = c.spec;
  std::int64_t rows = c.microbatch.rows();
  std::int64_t stream = c.stream_rows();

  BufferSpec value(Buf id, std::string_view name, std::int64_t columns, Reader reader) const {
    return {id, name, {{rows, columns}}, c.precision.compute, reader};
  }
  BufferSpec statistic(Buf id, std::string_view name, std::int64_t columns, Reader reader) const {
    return {id, name, {{rows, columns}}, c.precision.accumulate, reader};
  }
  // In the rows of the residual stream; C wide unless said.
  BufferSpec stream_value(Buf id, std::string_view name, Reader reader) const {
    return {id, name, {{stream, s.C()}}, c.precision.compute, reader};
  }
  BufferSpec stream_statistic(Buf id, std::string_view name, Reader reader, std::int64_t columns = 1) const {
    return {id, name, {{stream, columns}}, c.precision.accumulate, reader};
  }
  // Where the rows of the stream are not all rows.
  void add_all_rows(BufferList& list) const {
    if (c.tp > 1) list.push_back(value(Buf::all_rows, "rows of all tp ranks", s.C(), Reader::forward));
  }
  BufferSpec partial(std::int64_t columns) const {
    return {Buf::partial, "column sums", {{norm_partial_rows(rows), columns}}, c.precision.accumulate, Reader::forward};
  }
};

// Splits the buffers between F and B by the recompute policy: what products, attention and exchanges made is saved,
// norms' outputs and activations are recomputed.
enum class Keep { save, recompute };

struct TaggedBuffer {
  Keep keep;
  BufferSpec buffer;
};
using TaggedBuffers = ShortList<TaggedBuffer, 64>;

// Attention and its norm: x → h.
void add_attention_forward(const BufferContext&, TaggedBuffers&);
void add_attention_gradients(const BufferContext&, BufferList&);
// Beside what all layers have: in W.
void add_attention_scratch_weight(const BufferContext&, BufferList&);
// The same of multi-head latent attention, to which those above hand on.
void add_latent_forward(const BufferContext&, TaggedBuffers&);
void add_latent_gradients(const BufferContext&, BufferList&);
BufferList scratch_backward_latents(const BufferContext&);
// o, lse and h, which end both kinds.
void add_attention_outputs(const BufferContext&, TaggedBuffers&);
// Columns of the widest column sum in W; 0: none.
std::int64_t attention_bias_columns(const BufferContext&);

// Router, shared experts and experts, from the normalised stream on.
void add_moe_forward(const BufferContext&, TaggedBuffers&);
void add_moe_scratch_forward(const BufferContext&, BufferList&);
void add_moe_gradients(const BufferContext&, BufferList&);
void add_moe_scratch_backward(const BufferContext&, BufferList&);
void add_moe_scratch_weight(const BufferContext&, BufferList&);
// For the whole run.
void add_router_run(const BufferContext&, BufferList&);

}  // namespace forge
