#include "parallel/fp8/coded_gather.hpp"

#include "core/to_size.hpp"
#include "kernels/fp8/fp8_count_rows.hpp"
#include "kernels/fp8/fp8_encode.hpp"

namespace forge {

template <class T>
CodedGather<T>::CodedGather(Arena& arena, Stream& compute, const BufferContext& context, const CodedUnits& units,
                            const AmaxHistory& history)
    : context_(context), units_(units), history_(history) {
  allocate(arena, context, Category::parameters, buffers_, units);
  // What others' places among codes hold is sent, and never read.
  if (!buffers_.codes.empty()) fill_zero(compute, buffers_.codes.data, to_size(units.codes));
  if (!buffers_.others.empty()) fill_zero(compute, buffers_.others.data, to_size(units.others) * sizeof(T));
}

template <class T>
void CodedGather<T>::take_amaxes(Stream& compute, const ParameterStorage<T>& storage, Mesh& mesh) {
  if (units_.amaxes() > 0) fill_zero(compute, buffers_.amax.data, to_size(units_.amaxes()) * sizeof(float));
  for (std::size_t u = 0; u < units_.units.size(); ++u)
    for (const CodedMatrices& m : units_.units[u].matrices) {
      const Range all = m.range(), here = intersection(all, storage.unit(u).state);
      const std::int64_t begin = here.begin - storage.unit(u).state.begin;
      const View<const T, 1> part =
          here.empty() ? View<const T, 1>() : View<const T, 1>(storage.unit(u).copy).slice(begin, begin + here.size());
      fp8_amax_of_part<T>(compute, part, here.begin - all.begin, m.each, amax_of(m));
    }
  if (units_.dense > 0) mesh.matrices(false).all_reduce_max(compute, buffers_.amax.slice(0, units_.dense));
  if (units_.experts > 0)
    mesh.matrices(true).all_reduce_max(compute, buffers_.amax.slice(units_.dense, units_.amaxes()));
}

// Routed experts have no history.
template <class T>
View<float, 1> CodedGather<T>::scaling_of(const LocalUnit& unit, const CodedMatrices& m) const {
  if (context_.rounding.history == 0 || unit.is_experts()) return amax_of(m);
  return history_.given_to(unit.layer, m.product, RoundedTensor::weights);
}

template <class T>
void CodedGather<T>::gather(Stream& stream, std::size_t u, const RankUnit<T>& unit, Communicator& shards,
                            View<T, 1> to) {
  const CodedUnit& coded = units_.units[u];
  const bool exact = context_.rounding.exact;
  for (const CodedMatrices& m : coded.matrices) {
    const Range here = intersection(m.range(), unit.state);
    if (here.empty()) continue;
    const std::int64_t begin = here.begin - unit.state.begin;
    fp8_encode<T>(stream, View<const T, 1>(unit.copy).slice(begin, begin + here.size()), here.begin - m.offset, m.each,
                  exact, scaling_of(unit.local, m), buffers_.codes.slice(here.begin, here.end));
  }
  const View<std::uint8_t, 1> own = buffers_.codes.slice(unit.state.begin, unit.state.end);
  shards.all_gather(stream, View<const std::uint8_t, 1>(own), buffers_.codes.slice(0, unit.local.elements));
  for (const CodedMatrices& m : coded.matrices) {
    const Range all = m.range();
    fp8_decode<T>(stream, buffers_.codes.slice(all.begin, all.end), m.each, exact, scaling_of(unit.local, m),
                  to.slice(all.begin, all.end));
  }
  gather_others(stream, coded, unit, shards, to);
}

// Each rank's, one behind the other, and as many from each.
template <class T>
void CodedGather<T>::gather_others(Stream& stream, const CodedUnit& coded, const RankUnit<T>& unit,
                                   Communicator& shards, View<T, 1> to) {
  const std::int64_t each = coded.others_of_shard, size = unit.state.size();
  if (each == 0) return;
  const auto parts = [&](int rank, auto visit) {  // visit(first among the rank's, range of the unit)
    std::int64_t at = rank * each;
    for (const Range& range : coded.others) {
      const Range here = intersection(range, {rank * size, (rank + 1) * size});
      if (here.empty()) continue;
      visit(at, here);
      at += here.size();
    }
  };
  const auto bytes = [](const Range& range) { return to_size(range.size()) * sizeof(T); };
  parts(shards.rank(), [&](std::int64_t at, const Range& here) {
    copy_on_device(stream, buffers_.others.data + at, unit.copy.data + (here.begin - unit.state.begin), bytes(here));
  });
  const View<T, 1> own = buffers_.others.slice(shards.rank() * each, (shards.rank() + 1) * each);
  shards.all_gather(stream, View<const T, 1>(own), buffers_.others.slice(0, shards.size() * each));
  for (int rank = 0; rank < shards.size(); ++rank)
    parts(rank, [&](std::int64_t at, const Range& here) {
      copy_on_device(stream, to.data + here.begin, buffers_.others.data + at, bytes(here));
    });
}

template <class T>
void CodedGather<T>::count(const Context<T>& ctx, const RankUnit<T>& unit, std::size_t u) const {
  const RoundingCounts& to = ctx.rounding.counts;
  for (const CodedMatrices& m : units_.units[u].matrices) {
    const Range here = intersection(m.range(), unit.state);
    if (here.empty()) continue;
    const std::int64_t begin = here.begin - unit.state.begin;
    fp8_count_of_part<T>(ctx.stream, View<const T, 1>(unit.copy).slice(begin, begin + here.size()),
                         here.begin - m.offset, m.each, m.lines, unit.local.zero.shards, context_.rounding.exact,
                         scaling_of(unit.local, m), to.partials,
                         View<double, 1>(to.counts.row(rounding_count_row(m.product, RoundedTensor::weights)),
                                         {{rounding_count_columns}}));
  }
}

template <class T>
WeightAmaxes CodedGather<T>::amaxes_of(const StageLayer& layer) const {
  WeightAmaxes amaxes{};
  for (const std::size_t unit : {layer.unit, layer.second}) {
    if (unit >= units_.units.size()) continue;  // no_unit among them
    for (const CodedMatrices& m : units_.units[unit].matrices) amaxes[to_size(m.product)] = amax_of(m);
  }
  return amaxes;
}

template <class T>
void CodedGather<T>::count(const Context<T>& ctx, const ParameterStorage<T>& storage, const StageLayer& layer) const {
  if (ctx.rounding.counts.counts.empty() || !ctx.rounding.block) return;
  for (const std::size_t unit : {layer.unit, layer.second})
    if (unit != no_unit && has(unit)) count(ctx, storage.unit(unit), unit);
}

FORGE_INSTANTIATE_CLASS(CodedGather);

}  // namespace forge
