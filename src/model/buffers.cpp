#include "model/buffers.hpp"

#include <algorithm>

#include "config/head_ranks.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"

namespace forge {

std::size_t aligned_bytes(const BufferList& list) {
  std::size_t sum = 0;
  for (const auto& buffer : list) sum += align_up(buffer.bytes());
  return sum;
}

void place(const BufferList& list, void* memory) {
  require(memory != nullptr || list.empty(), "a task reads buffers that have no memory");
  auto* at = static_cast<std::byte*>(memory);
  for (const auto& buffer : list) {
    buffer.place(buffer.member, at, buffer.extents);
    at += align_up(buffer.bytes());
  }
}

namespace {

Precision in_bf16(const Deck& deck) {
  Precision precision = bf16_precision;
  if (deck.optimizer.master_weights == StateType::bf16) precision.storage = DType::bf16;
  return precision;
}

// Rows of a head chunk where the deck says 0: by the logits that exist at a time, a multiple of 64, at most R. Each
// chunk reads the head's weights and, but for the first, adds to their gradient, which a GPU doesn't hide behind the
// product: of 2,048 rows, 4,096 columns and a vocabulary of 128,256, an H200 took 3.73 ms for one that adds and 3.09
// for the logits, of as many FLOP. So chunks are large, with up to 3 GiB of logits in fp32 and gradients in bf16. On
// processors, whose precision is rarely bf16, they stay near the caches.
std::int64_t head_chunk_rows_of(std::int64_t wanted, std::int64_t rows, std::int64_t vocabulary, DType compute) {
  if (wanted > 0) return std::min(wanted, rows);
  const bool gpu = compute == DType::bf16;
  const std::int64_t elements = gpu ? std::int64_t{512} << 20 : std::int64_t{16} << 20;
  const std::int64_t least = gpu ? 512 : 128, most = gpu ? 4096 : rows;
  return std::min(rows, std::clamp<std::int64_t>(elements / vocabulary / 64 * 64, least, std::max(least, most)));
}

// As many as nn/units.plan.hpp lists.
std::int64_t unit_count(const ModelSpec& spec) {
  const std::int64_t layers = spec.L() + spec.options.mtp_depth;
  std::int64_t count = 2 + !spec.rope() + !spec.options.tied_embeddings + layers;
  for (std::int64_t layer = 0; layer < layers; ++layer) count += spec.is_moe(layer);
  return count;
}

}  // namespace

Precision precision_of(const Deck& deck) {
  switch (deck.train.precision) {
    case PrecisionName::fp64:
      return fp64_precision;
    case PrecisionName::fp32:
      return fp32_precision;
    case PrecisionName::bf16:
      return in_bf16(deck);
    case PrecisionName::fp8:
      break;
  }
  return deck.train.fp8_carrier == Fp8Carrier::fp64 ? fp64_precision : in_bf16(deck);
}

BufferContext buffer_context(const Deck& deck, const ModelSpec& local, const KernelChoice& kernels) {
  const Microbatch microbatch{deck.train.microbatch_sequences, deck.train.sequence_tokens,
                              static_cast<int>(deck.mesh.cp)};
  const Precision precision = precision_of(deck);
  BufferContext context{local,
                        microbatch,
                        precision,
                        deck.train.recompute,
                        head_chunk_rows_of(deck.train.head_chunk_rows, microbatch.rows(), local.V(), precision.compute),
                        static_cast<int>(deck.mesh.tp),
                        deck.mesh.cp_method,
                        static_cast<int>(head_ranks(deck)),
                        static_cast<int>(deck.mesh.ep),
                        std::max(static_cast<int>(deck.mesh.etp), 1),
                        1,
                        optimizer_state(deck.optimizer, precision.accumulate),
                        static_cast<std::int64_t>(deck.data.sources.size()),
                        deck.data.restarts_positions(),
                        deck.optimizer.qk_clip > 0,
                        deck.output.norms_every_steps > 0 ? unit_count(local) : 0,
                        rounding_options(deck),
                        kernels,
                        chosen_grouped_products(deck, kernels.grouped) != GroupedProducts::library,
                        kernels.grouped == GroupedProducts::cutlass};
  context.pairs = deck.preference.on();
  context.tracks = deck.train.overlap == Overlap::pairs ? 2 : 1;
  context.checks_gradients = deck.train.check_gradients_steps > 0;
  return context;
}

}  // namespace forge
