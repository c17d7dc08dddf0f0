#include "nn/dispatch.hpp"

#include "kernels/moe.hpp"
#include "nn/exchange_dispatch.hpp"
#include "nn/gather_dispatch.hpp"

namespace forge {

namespace {

// Assignments of each expert of this rank's rows, or, where one rank has sorted those of all, of the group's.
template <class T>
void add_load(Context<T>& ctx, const BufferSet& s, View<double, 1> load) {
  const bool of_group = moe_shape(ctx.buffers).gathers;
  const bool first = ctx.groups.ep_rank() == 0 && ctx.groups.etp_rank() == 0;
  if (!load.empty() && (!of_group || first)) add_counts(ctx.stream, s.vector<std::int64_t>(Buf::own_counts), load);
}

template <class T>
void sort(Context<T>& ctx, const BufferSet& s, View<const std::int32_t, 2> choices) {
  if (moe_shape(ctx.buffers).gathers)
    GatherDispatch<T>::sort(ctx, s, choices);
  else
    ExchangeDispatch<T>::sort(ctx, s, choices);
}

}  // namespace

template <class T>
std::unique_ptr<Dispatch<T>> sort_assignments(Context<T>& ctx, const BufferSet& s, View<double, 1> load) {
  const bool drops = s.has(Buf::kept_choices);
  if (!drops || !load.empty()) sort<T>(ctx, s, s.matrix<std::int32_t>(Buf::choices));
  add_load(ctx, s, load);
  if (drops) sort<T>(ctx, s, s.matrix<std::int32_t>(Buf::kept_choices));
  if (!moe_shape(ctx.buffers).gathers) ExchangeDispatch<T>::share(ctx, s);
  return sorted_assignments(ctx, s);
}

template <class T>
std::unique_ptr<Dispatch<T>> sorted_assignments(Context<T>& ctx, const BufferSet& s) {
  if (moe_shape(ctx.buffers).gathers) return std::make_unique<GatherDispatch<T>>(ctx, s);
  return std::make_unique<ExchangeDispatch<T>>(ctx, s);
}

#define FORGE_INSTANTIATE(T)                                                                                 \
  template std::unique_ptr<Dispatch<T>> sort_assignments<T>(Context<T>&, const BufferSet&, View<double, 1>); \
  template std::unique_ptr<Dispatch<T>> sorted_assignments<T>(Context<T>&, const BufferSet&);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge
