#include "nn/dispatch.hpp"

#include "kernels/experts/expert_kernels.hpp"
#include "nn/exchange_dispatch.hpp"
#include "nn/gather_dispatch.hpp"
#include "nn/host_counts.hpp"
#include "nn/local_dispatch.hpp"
#include "nn/two_level_dispatch.hpp"

namespace forge {

namespace {

// The order of this rank's choices, whose places are the first ones of all sources'.
template <class T>
void sort_own(const Context<T>& ctx, View<const std::int32_t, 2> choices, const SortScratch& sorting,
              const DispatchBuffers<T>& b) {
  moe_sort(ctx.stream, choices, sorting.sort, sorting.counts, b.offsets.empty() ? sorting.offsets : b.offsets,
           b.order.slice(0, choices.size()), b.place.slice(0, choices.rows()));
}

// Without counts on the host rounding takes the magnitudes of all rows: those of filler, which are zero, then go to the
// last expert.
template <class T>
void give_away_filler(const Context<T>& ctx, const DispatchBuffers<T>& b) {
  if (!gives_filler_away(ctx.buffers, ctx.rounding.block)) return;
  const MoeShape m = moe_shape(ctx.buffers);
  fill_counts(ctx.stream, m.places, b.offsets.slice(m.experts, m.experts + 1));
}

// Behind it: the host reads the counts; where rows are gathered, the begins of experts.
template <class T>
void read_counts(const Context<T>& ctx, const SortScratch& sorting, const DispatchBuffers<T>& b) {
  const MoeShape m = moe_shape(ctx.buffers);
  if (!m.reads_counts) return;
  const auto read = [&](const auto& counts) {
    ctx.services.counts->read(ctx.stream, b.order.data, counts, ctx.tracks);
  };
  if (m.gathers) return read(View<const std::int64_t, 1>(b.offsets));
  if (!m.exchanges()) return read(View<const std::int64_t, 1>(sorting.counts));
  if (m.two_level()) {
    TwoLevelDispatch<T>::share(ctx, sorting, b);
    return read(View<const std::int64_t, 2>(sorting.all_counts));
  }
  ExchangeDispatch<T>::share(ctx, sorting, b);
  read(View<const std::int64_t, 2>(b.counts));
}

}  // namespace

template <class T>
std::unique_ptr<Dispatch<T>> sort_assignments(const Context<T>& ctx, View<const std::int32_t, 2> choices,
                                              View<const std::int32_t, 2> kept, const SortScratch& sorting,
                                              const DispatchBuffers<T>& b, const DispatchScratch<T>& s,
                                              View<double, 1> load) {
  const bool gathers = moe_shape(ctx.buffers).gathers, first = ctx.groups.ep_rank() == 0 && ctx.groups.etp_rank() == 0;
  const auto sort = [&](View<const std::int32_t, 2> list) {
    if (gathers)
      GatherDispatch<T>::sort(ctx, list, sorting, b);
    else
      sort_own(ctx, list, sorting, b);
  };
  if (kept.empty()) {
    sort(choices);
    // Gathered choices are in every rank's counts: one of them adds them.
    if (!load.empty() && (!gathers || first)) add_counts(ctx.stream, sorting.counts, load);
  } else {
    if (!load.empty()) {
      sort_own(ctx, choices, sorting, b);
      add_counts(ctx.stream, sorting.counts, load);
    }
    sort(kept);
  }
  give_away_filler(ctx, b);
  if (!moe_shape(ctx.buffers).two_level()) {
    read_counts(ctx, sorting, b);
    return sorted_assignments(ctx, b, s);
  }
  TwoLevelDispatch<T>::sort(ctx, kept.empty() ? choices : kept, sorting, b, s);
  read_counts(ctx, sorting, b);
  return std::make_unique<TwoLevelDispatch<T>>(ctx, b, s, true);
}

template <class T>
std::unique_ptr<Dispatch<T>> sorted_assignments(const Context<T>& ctx, const DispatchBuffers<T>& b,
                                                const DispatchScratch<T>& s) {
  const MoeShape m = moe_shape(ctx.buffers);
  if (!m.exchanges()) return std::make_unique<LocalDispatch<T>>(ctx, b, s);
  if (m.gathers) return std::make_unique<GatherDispatch<T>>(ctx, b, s);
  if (m.two_level()) return std::make_unique<TwoLevelDispatch<T>>(ctx, b, s, false);
  return std::make_unique<ExchangeDispatch<T>>(ctx, b, s);
}

FORGE_INSTANTIATE_FUNCTION(sort_assignments);
FORGE_INSTANTIATE_FUNCTION(sorted_assignments);

}  // namespace forge
