#include "parallel/activation_slots.hpp"

namespace forge {

ActivationSlots::ActivationSlots(Arena& arena, const BufferContext& context, const RankShare& share,
                                 std::vector<SlotTables> lists, bool training)
    : context_(context), share_(share), lists_(std::move(lists)) {
  const SlotTables& tables = lists_.front();
  for (std::size_t r = 0; r < regions_.size(); ++r)
    for (std::size_t c = 0; c < share.chunks.size(); ++c) {
      const auto parts = slot_parts(static_cast<Region>(r), context, share.chunks[c], share.layers[c], training);
      regions_[r].emplace_back();
      for (int i = 0; i < tables[r].counts[c]; ++i) {
        Slot slot;
        for (const SlotPart& part : parts) {
          slot.resize(std::max(slot.size(), part.part + 1));
          slot[part.part] = arena.allocate(part.bytes, part.category);
        }
        regions_[r].back().push_back(std::move(slot));
      }
    }
}

std::vector<std::span<std::byte>> ActivationSlots::received(Region edge) const {
  std::vector<std::span<std::byte>> all;
  for (std::size_t c = 0; c < share_.chunks.size(); ++c) {
    if (edge == Region::input ? share_.chunks[c].embedding : share_.chunks[c].head) continue;
    for (const SlotPart& part : slot_parts(edge, context_, share_.chunks[c], share_.layers[c], true))
      for (const Slot& slot : regions_[to_size(edge)][c])
        all.emplace_back(static_cast<std::byte*>(slot[part.part]), part.bytes);
  }
  return all;
}

Batch ActivationSlots::batch(int chunk, int m, int state) const {
  const std::size_t first = share_.layers[to_size(chunk)].size();
  Batch rows;
  BufferLister own(context_), shifted(context_);
  rows.list(own);
  place(own.list, part(Region::saved, chunk, m, first));
  rows.list_shifted(shifted);
  if (state > 0) place(shifted.list, part(Region::saved, chunk, m, first + to_size(state)));
  return rows;
}

void* ActivationSlots::part(Region region, int chunk, int m, std::size_t part) const {
  const auto r = to_size(region);
  const int slot = lists_[now_][r].at(chunk, m);
  require(slot >= 0, "a task reads a region that its microbatch doesn't keep");
  return regions_[r][to_size(chunk)][to_size(slot)].at(part);
}

}  // namespace forge
