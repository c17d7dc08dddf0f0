#include "parallel/whole_tensors.hpp"

#include "device/memory.hpp"

namespace forge {

namespace {

std::size_t index_of(const RankShare& share, const Unit& unit) {
  for (std::size_t u = 0; u < share.units.size(); ++u)
    if (share.units[u].kind == unit.kind && share.units[u].layer == unit.layer) return u;
  return share.units.size();
}

}  // namespace

template <class T>
WholeTensors<T>::WholeTensors(const ParameterStorage<T>& storage, Mesh& mesh, std::function<RankShare(int)> share_of,
                              Heartbeat* heartbeat)
    : storage_(storage), mesh_(mesh), own_(share_of(mesh.rank())), heartbeat_(heartbeat) {
  for (int r = 0; receives() && r < mesh.world().size(); ++r) shares_.push_back(share_of(r));
}

template <class T>
std::vector<typename WholeTensors<T>::Piece> WholeTensors<T>::pieces_of(const RankShare& share, const Unit& unit,
                                                                        std::size_t parameter) {
  std::vector<Piece> pieces;
  const std::size_t u = index_of(share, unit);
  if (u == share.units.size()) return pieces;
  const LocalUnit& local = share.units[u];
  const std::int64_t state = zero_of(share.zero, local).state_of(local).begin;
  for (const Range& counted : counted_ranges(local, zero_of(share.zero, local), share.counts[u] != 0))
    for (const Run& run : runs_of(local, counted))
      if (run.piece->parameter == parameter) pieces.push_back({run.local - state, run.global, run.count});
  return pieces;
}

template <class T>
std::vector<typename WholeTensors<T>::S> WholeTensors<T>::collect(const Unit& unit, std::size_t parameter,
                                                                  TensorSource source, Stream& stream) {
  auto total = [](const std::vector<Piece>& pieces) {
    std::int64_t n = 0;
    for (const Piece& piece : pieces) n += piece.count;
    return n;
  };
  const int ranks = mesh_.world().size();
  const auto own = pieces_of(own_, unit, parameter);
  std::vector<std::int64_t> sent(static_cast<std::size_t>(ranks), 0), received(sent);
  sent.front() = total(own);
  std::vector<std::vector<Piece>> all;
  std::int64_t arrives = 0;
  for (std::size_t r = 0; r < shares_.size(); ++r) {
    all.push_back(pieces_of(shares_[r], unit, parameter));
    received[r] = total(all.back());
    arrives += received[r];
  }
  Buffer in(static_cast<std::size_t>(std::max<std::int64_t>(sent.front(), 1)) * sizeof(S));
  Buffer out(static_cast<std::size_t>(std::max<std::int64_t>(arrives, 1)) * sizeof(S));
  S* packed = reinterpret_cast<S*>(in.data());
  const std::size_t u = index_of(own_, unit);
  for (const Piece& piece : own) {
    const UnitStorage<T>& s = storage_.unit(u);
    const View<S, 1>& from = source == TensorSource::gradients ? s.gradient : s.master;
    copy_on_device(stream, packed, from.data + piece.state_begin, static_cast<std::size_t>(piece.count) * sizeof(S));
    packed += piece.count;
  }
  mesh_.scalars().all_to_all(stream, in.data(), sent, out.data(), received, dtype_of<S>);
  std::vector<S> values(static_cast<std::size_t>(arrives)), whole;
  if (receives()) copy_to_host(stream, values.data(), out.data(), values.size() * sizeof(S));
  stream.synchronize();
  if (heartbeat_) heartbeat_->beat();
  if (!receives()) return whole;
  whole.resize(static_cast<std::size_t>(unit.parameters[parameter].elements()));
  require(whole.size() == values.size(), "the ranks together don't hold every element of a tensor once");
  const S* from = values.data();
  for (const auto& pieces : all)
    for (const Piece& piece : pieces) {
      std::copy(from, from + piece.count, whole.begin() + piece.global);
      from += piece.count;
    }
  return whole;
}

template <class T>
WholeWeights<T>::WholeWeights(const ModelSpec& spec, WholeTensors<T>& tensors, Stream& stream) {
  const std::vector<LocalUnit> whole = whole_units(spec);
  for (const Unit& unit : parameter_units(spec)) {
    const LocalUnit& local = whole[units.size()];
    std::vector<T> values(tensors.receives() ? static_cast<std::size_t>(local.elements) : 0);
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      const auto tensor = tensors.collect(unit, i, TensorSource::parameters, stream);
      if (tensor.empty()) continue;
      for (const Run& run : runs_of(local, {0, local.elements}))
        if (run.piece->parameter == i)
          for (std::int64_t k = 0; k < run.count; ++k)
            values[static_cast<std::size_t>(run.local + k)] = T(tensor[static_cast<std::size_t>(run.global + k)]);
    }
    units.push_back(local);
    if (!tensors.receives()) continue;
    buffers.emplace_back(values.size() * sizeof(T));
    copy_to_device(stream, buffers.back().data(), values.data(), values.size() * sizeof(T));
    stream.synchronize();
    weights.push_back(reinterpret_cast<const T*>(buffers.back().data()));
  }
}

#define FORGE_INSTANTIATE(T)      \
  template class WholeTensors<T>; \
  template struct WholeWeights<T>;
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge
