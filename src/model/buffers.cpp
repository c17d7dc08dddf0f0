#include "model/buffers.hpp"

#include <algorithm>

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

std::int64_t resolve_head_chunk(std::int64_t wanted, std::int64_t rows, std::int64_t vocabulary) {
  if (wanted > 0) return std::min(wanted, rows);
  const std::int64_t fitting = (std::int64_t{16} << 20) / vocabulary / 64 * 64;
  return std::min(rows, std::max<std::int64_t>(fitting, 128));
}

Precision precision_of(const Deck& deck) {
  return deck.train.precision == PrecisionName::fp64   ? fp64_precision
         : deck.train.precision == PrecisionName::fp32 ? fp32_precision
                                                       : bf16_precision;
}

BufferContext buffer_context(const Deck& deck, const ModelSpec& local) {
  const Microbatch microbatch{deck.train.microbatch_sequences, deck.train.sequence_tokens,
                              static_cast<int>(deck.mesh.cp)};
  const Precision precision = precision_of(deck);
  return {local,
          microbatch,
          precision,
          deck.train.recompute,
          resolve_head_chunk(deck.train.head_chunk_rows, microbatch.rows(), local.V()),
          static_cast<int>(deck.mesh.tp),
          deck.mesh.cp_method,
          static_cast<int>(deck.mesh.ep),
          std::max(static_cast<int>(deck.mesh.etp), 1),
          optimizer_state(deck.optimizer, precision.storage)};
}

}  // namespace forge
