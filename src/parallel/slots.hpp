#pragma once

#include <vector>

#include "device/arena.hpp"
#include "layout/split.hpp"
#include "nn/buffer_set.hpp"
#include "schedule/slots.hpp"

namespace forge {

// What the microbatches in flight keep on a rank, by chunk: allocated for the whole run, as many of each as the
// schedule's lifetimes overlap. plan/memory.cpp adds up the same lists.
class ActivationSlots {
 public:
  // `schedule` is lowered, `rank` a pipeline rank; `training` false: one microbatch of a forward pass.
  ActivationSlots(Arena& arena, const BufferContext& context, const Schedule& schedule, int rank,
                  const std::vector<StageContent>& chunks, bool training);

  // The microbatch's rows.
  const BufferSet& batch(int chunk, int m) const { return saved(chunk, m).batch; }
  // All that layer `l` of the chunk (from 0, those of multi-token prediction behind the others) keeps, and the batch.
  BufferSet block(int chunk, int m, int l) const;
  // What the final norm keeps, and the head with it where both are here.
  BufferSet final_norm(int chunk, int m) const;
  // What the head keeps of the j-th state that reaches it; n_final is the state itself.
  template <class T>
  BufferSet state_at_head(int chunk, int m, int j) const {
    BufferSet set = saved(chunk, m).states[static_cast<std::size_t>(j)];
    set.name(Buf::n_final, state_of(input<T>(chunk, m), j));
    return set;
  }
  // The j-th of the states (S,C) that stand in an edge, one behind the other.
  template <class T>
  View<T, 2> state_of(View<T, 2> edge, int j) const {
    return edge.slice(j * rows_, (j + 1) * rows_);
  }
  // The same and what B leaves for W, where they are separate actions.
  BufferSet block_apart(int chunk, int m, int l) const;

  // Edges of a chunk (states S,C): of its last layer or what it hands on, of its first layer.
  template <class T>
  View<T, 2> input(int chunk, int m) const {
    const BufferSet& set = edge(inputs_, chunk, m);
    return set.has(Buf::x) ? set.matrix<T>(Buf::x) : set.matrix<T>(Buf::x_final);
  }
  template <class T>
  View<T, 2> output(int chunk, int m) const {
    return edge(outputs_, chunk, m).template matrix<T>(Buf::x);
  }
  template <class T>
  View<T, 2> output_gradient(int chunk, int m) const {
    return edge(output_gradients_, chunk, m).template matrix<T>(Buf::d_stream_a);
  }
  template <class T>
  View<T, 2> input_gradient(int chunk, int m) const {
    return edge(input_gradients_, chunk, m).template matrix<T>(Buf::d_stream_a);
  }
  // B apart from W: gradient of the output of layer l, of the embedding where l is −1.
  template <class T>
  View<T, 2> layer_gradient(int chunk, int m, int l) const {
    const Apart& a = apart(chunk, m);
    return (l < 0 ? a.embedding : a.blocks[static_cast<std::size_t>(l)]).template matrix<T>(Buf::d_stream_a);
  }

 private:
  struct Saved {
    BufferSet batch;
    std::vector<BufferSet> blocks;
    BufferSet norm;
    std::vector<BufferSet> states;
  };
  struct Apart {
    std::vector<BufferSet> blocks;
    BufferSet embedding;
  };
  template <class Item>
  struct Pool {
    SlotTable table;
    std::vector<std::vector<Item>> items;  // by chunk, slot
  };

  template <class Item>
  static const Item& item(const Pool<Item>& pool, int chunk, int m) {
    const int slot = pool.table.at(chunk, m);
    require(slot >= 0, "a schedule reads an activation that it doesn't keep");
    return pool.items[static_cast<std::size_t>(chunk)][static_cast<std::size_t>(slot)];
  }
  const Saved& saved(int chunk, int m) const { return item(saved_, chunk, m); }
  const Apart& apart(int chunk, int m) const { return item(apart_, chunk, m); }
  static const BufferSet& edge(const Pool<BufferSet>& pool, int chunk, int m) { return item(pool, chunk, m); }

  std::vector<StageContent> chunks_;
  std::int64_t rows_;  // S
  Pool<Saved> saved_;
  Pool<Apart> apart_;
  Pool<BufferSet> inputs_, outputs_, output_gradients_, input_gradients_;
};

}  // namespace forge
