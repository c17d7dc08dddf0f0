#include "parallel/slots.hpp"

#include "layout/chunk_buffers.hpp"
#include "model/mtp_buffers.hpp"

namespace forge {

namespace {

// One microbatch at a time: every chunk has one slot.
SlotTable single_slots(const Schedule& schedule) {
  SlotTable table;
  table.microbatches = schedule.microbatches;
  table.counts.assign(static_cast<std::size_t>(schedule.chunks_per_rank), 1);
  table.slots.assign(static_cast<std::size_t>(schedule.chunks_per_rank * schedule.microbatches), 0);
  return table;
}

}  // namespace

ActivationSlots::ActivationSlots(Arena& arena, const BufferContext& context, const Schedule& schedule, int rank,
                                 const std::vector<StageContent>& chunks, bool training)
    : chunks_(chunks), rows_(context.stream_rows()) {
  auto fill = [&](auto& pool, Lifetime lifetime, bool forward, auto make) {
    if (!training && !forward) return;
    pool.table = training ? assign_slots(schedule, rank, lifetime) : single_slots(schedule);
    pool.items.resize(chunks_.size());
    for (std::size_t c = 0; c < chunks_.size(); ++c)
      for (int i = 0; i < pool.table.counts[c]; ++i) pool.items[c].push_back(make(chunks_[c]));
  };
  auto edges = [&](auto has, auto list) {
    return [&arena, has, list](const StageContent& chunk) {
      BufferSet set;
      if (has(chunk)) set.add(list(chunk), arena, Category::activations);
      return set;
    };
  };
  fill(saved_, Lifetime::saved_for_weight, true, [&](const StageContent& chunk) {
    Saved saved;
    saved.batch.add(batch_buffers(context), arena, Category::data);
    for (int l = 0; l < chunk.layers; ++l) {
      BufferSet set = saved.batch;
      set.add(chunk_block_saved(context, chunk, l), arena, Category::activations);
      saved.blocks.push_back(set);
    }
    for (int k = 0; k < chunk.mtp_layers && training; ++k) {
      BufferSet set = saved.batch;
      set.add(batch_of_mtp(context), arena, Category::data);
      set.add(chunk_mtp_saved(context, chunk, k), arena, Category::activations);
      saved.blocks.push_back(set);
    }
    saved.norm = saved.batch;
    saved.norm.add(chunk_norm_saved(context, chunk), arena, Category::activations);
    for (int j = 0; j < states_at_head(chunk, training); ++j) {
      BufferSet set = saved.batch;
      if (j > 0) set.add(batch_of_mtp(context), arena, Category::data);
      set.add(saved_of_state(context), arena, Category::activations);
      saved.states.push_back(set);
    }
    return saved;
  });
  fill(apart_, Lifetime::weight_inputs, false, [&](const StageContent& chunk) {
    Apart apart;
    for (int l = 0; l < chunk.layers; ++l) {
      apart.blocks.emplace_back();
      apart.blocks.back().add(chunk_block_apart(context, chunk, l), arena, Category::activations);
    }
    for (int k = 0; k < chunk.mtp_layers; ++k) {
      apart.blocks.emplace_back();
      apart.blocks.back().add(chunk_mtp_apart(context, chunk, k), arena, Category::activations);
    }
    apart.embedding.add(chunk_embedding_apart(context, chunk), arena, Category::activations);
    return apart;
  });
  const auto always = [](const StageContent&) { return true; };
  fill(inputs_, Lifetime::input, true,
       edges(always, [&](const StageContent& chunk) { return chunk_input(context, chunk, training); }));
  fill(outputs_, Lifetime::output, true,
       edges(has_output, [&](const StageContent& chunk) { return chunk_output(context, chunk, training); }));
  fill(output_gradients_, Lifetime::output_gradient, false,
       edges(has_output, [&](const StageContent& chunk) { return chunk_output_gradient(context, chunk); }));
  fill(input_gradients_, Lifetime::input_gradient, false,
       edges(has_input_gradient, [&](const StageContent& chunk) { return chunk_input_gradient(context, chunk); }));
}

BufferSet ActivationSlots::block(int chunk, int m, int l) const {
  BufferSet set = saved(chunk, m).blocks[static_cast<std::size_t>(l)];
  if (l == 0 && chunks_[static_cast<std::size_t>(chunk)].layers > 0) set.merge(edge(inputs_, chunk, m));
  return set;
}

BufferSet ActivationSlots::final_norm(int chunk, int m) const {
  BufferSet set = saved(chunk, m).norm;
  if (chunks_[static_cast<std::size_t>(chunk)].layers == 0) set.merge(edge(inputs_, chunk, m));
  return set;
}

BufferSet ActivationSlots::block_apart(int chunk, int m, int l) const {
  BufferSet set = block(chunk, m, l);
  set.merge(apart(chunk, m).blocks[static_cast<std::size_t>(l)]);
  return set;
}

}  // namespace forge
