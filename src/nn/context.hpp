#pragma once

#include <vector>

#include "comm/communicator.hpp"
#include "core/random.hpp"
#include "device/arena.hpp"
#include "kernels/gemm.hpp"
#include "kernels/kernels.hpp"
#include "model/buffers.hpp"

namespace forge {

// Where dropout acts in a block, and in the embedding (layer −1): part of its key.
enum class DropoutPlace : std::uint64_t { embedding, attention, attention_out, feed_forward };

// Keys and values of the rows that a generation has seen: one sequence, all layers.
template <class T>
struct KvCache {
  std::vector<View<T, 2>> k, v;                // per layer (capacity, K D)
  View<std::int32_t, 1> positions, documents;  // (capacity)
  std::int64_t length = 0;                     // rows that stand before the current ones
};

// The ranks that share a layer with this one; null where the axis has one rank. `stream` is a Worker: exchanges of keys
// run in it, behind attention.
struct LayerGroups {
  Communicator* tp = nullptr;  // in the compute stream
  Communicator* cp = nullptr;  // in `stream` or in the compute stream, one at a time
  Stream* stream = nullptr;

  int tp_rank() const { return tp ? tp->rank() : 0; }
  int tp_size() const { return tp ? tp->size() : 1; }
  int cp_rank() const { return cp ? cp->rank() : 0; }
  int cp_size() const { return cp ? cp->size() : 1; }
};

// What every layer of a rank needs beside its parameters and buffers.
template <class T>
struct Context {
  Stream& stream;
  Gemm& gemm;
  Arena& arena;
  const BufferContext& buffers;
  View<const acc_t<T>, 2> cosine, sine;  // (T, D/2), with rotary positions
  std::uint64_t seed = 0;
  std::int64_t step = 1;              // part of every dropout key
  bool training = true;               // dropout acts
  const KvCache<T>* cache = nullptr;  // generation: attention also sees the rows before
  LayerGroups groups = {};

  const ModelSpec& spec() const { return buffers.spec; }
  double dropout_rate() const { return training ? buffers.spec.options.dropout : 0; }
  std::uint64_t dropout_key(std::int64_t layer, DropoutPlace place) const {
    return random_key(seed, Purpose::dropout, static_cast<std::uint64_t>(step),
                      static_cast<std::uint64_t>(layer + 1) * 4 + static_cast<std::uint64_t>(place));
  }
};

}  // namespace forge
