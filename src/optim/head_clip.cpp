#include "optim/head_clip.hpp"

namespace forge {

template <class T>
HeadClip<T>::HeadClip(const ParameterStorage<T>& storage, const ModelSpec& spec, double most, const Heads& heads)
    : most_(most), kv_heads_(spec.K()), heads_(heads) {
  if (heads_.peaks.empty()) return;
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const RankUnit<T>& unit = storage.unit(u);
    if (unit.local.kind != UnitKind::block) continue;
    for (const ElementRun& run : runs_of(unit.local, unit.state)) {
      const Parameter& parameter = unit.local.parameters[run.piece->parameter];
      const std::int64_t columns = parameter.shape.size() > 1 ? parameter.shape[1] : 1;
      const std::int64_t begin = run.local - unit.state.begin, end = begin + run.count;
      for (const ClippedRows& rows : clipped_rows(spec, parameter)) {
        Part part{unit.master.slice(begin, end),
                  unit.gradient.empty() ? View<A, 1>() : unit.gradient.slice(begin, end),
                  {},
                  unit.local.layer,
                  run.global,
                  columns,
                  rows};
        if constexpr (!std::is_same_v<A, T>) part.copy = unit.copy.slice(begin, end);
        parts_.push_back(part);
      }
    }
  }
}

template <class T>
void HeadClip<T>::operator()(Stream& stream, const Update& update) const {
  if (heads_.peaks.empty()) return;
  head_factors<A>(stream, heads_.peaks, kv_heads_, most_, update.scalars, heads_.factors);
  const std::int64_t columns = heads_.factors.columns();
  for (const Part& part : parts_)
    scale_heads<T>(stream, part.rows, part.first, part.columns,
                   View<const A, 1>(heads_.factors.row(part.layer), {{columns}}), part.master, part.copy,
                   update.leaves ? part.gradient : View<A, 1>());
}

FORGE_INSTANTIATE_CLASS(HeadClip);

}  // namespace forge
