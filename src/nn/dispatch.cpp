#include "nn/dispatch.hpp"

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "nn/exchange_dispatch.hpp"
#include "nn/gather_dispatch.hpp"
#include "nn/local_dispatch.hpp"

namespace forge {

namespace {

// Assignments of each expert of this rank's rows, or, where one rank has sorted those of all, of the group's.
template <class T>
void add_load(const Context<T>& ctx, const SortScratch& sorting, View<double, 1> load) {
  const bool of_group = moe_shape(ctx.buffers).gathers;
  const bool first = ctx.groups.ep_rank() == 0 && ctx.groups.etp_rank() == 0;
  if (!load.empty() && (!of_group || first)) add_counts(ctx.stream, sorting.counts, load);
}

// The order of this rank's choices.
template <class T>
void sort_own(const Context<T>& ctx, View<const std::int32_t, 2> choices, const SortScratch& sorting,
              const DispatchBuffers<T>& b) {
  moe_sort(ctx.stream, choices, sorting.sort, sorting.counts, b.offsets.empty() ? sorting.offsets : b.offsets, b.order,
           b.place);
}

// Without counts on the host rounding takes the magnitudes of all rows: those of filler, which are zero, then go to the
// last expert.
template <class T>
void give_away_filler(const Context<T>& ctx, const DispatchBuffers<T>& b) {
  if (!gives_filler_away(ctx.buffers, ctx.rounding.block)) return;
  const MoeShape m = moe_shape(ctx.buffers);
  fill_counts(ctx.stream, m.places, b.offsets.slice(m.experts, m.experts + 1));
}

// Behind it: the counts that the host will read.
template <class T>
void finish_own(const Context<T>& ctx, const SortScratch& sorting, const DispatchBuffers<T>& b) {
  const MoeShape m = moe_shape(ctx.buffers);
  if (!m.reads_counts) return;
  if (m.exchanges()) return ExchangeDispatch<T>::share(ctx, sorting, b);
  copy_on_device(ctx.stream, b.counts.data, sorting.counts.data, to_size(m.experts) * sizeof(std::int64_t));
}

}  // namespace

template <class T>
std::unique_ptr<Dispatch<T>> sort_assignments(const Context<T>& ctx, View<const std::int32_t, 2> choices,
                                              View<const std::int32_t, 2> kept, const SortScratch& sorting,
                                              const DispatchBuffers<T>& b, const DispatchScratch<T>& s,
                                              View<double, 1> load) {
  const bool gathers = moe_shape(ctx.buffers).gathers;
  const auto sort = [&](View<const std::int32_t, 2> list) {
    if (gathers)
      GatherDispatch<T>::sort(ctx, list, sorting, b);
    else
      sort_own(ctx, list, sorting, b);
  };
  if (kept.empty() || !load.empty()) sort(choices);
  add_load(ctx, sorting, load);
  if (!kept.empty()) sort(kept);
  if (!gathers) {
    give_away_filler(ctx, b);
    finish_own(ctx, sorting, b);
  }
  return sorted_assignments(ctx, b, s);
}

template <class T>
std::unique_ptr<Dispatch<T>> sorted_assignments(const Context<T>& ctx, const DispatchBuffers<T>& b,
                                                const DispatchScratch<T>& s) {
  const MoeShape m = moe_shape(ctx.buffers);
  if (!m.exchanges()) return std::make_unique<LocalDispatch<T>>(ctx, b, s);
  if (m.gathers) return std::make_unique<GatherDispatch<T>>(ctx, b, s);
  return std::make_unique<ExchangeDispatch<T>>(ctx, b, s);
}

#define FORGE_INSTANTIATE(T)                                                                             \
  template std::unique_ptr<Dispatch<T>> sort_assignments(                                                \
      const Context<T>&, View<const std::int32_t, 2>, View<const std::int32_t, 2>, const SortScratch&,   \
      const DispatchBuffers<T>&, const DispatchScratch<T>&, View<double, 1>);                            \
  template std::unique_ptr<Dispatch<T>> sorted_assignments(const Context<T>&, const DispatchBuffers<T>&, \
                                                           const DispatchScratch<T>&);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
