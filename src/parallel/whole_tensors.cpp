#include "parallel/whole_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/to_size.hpp"
#include "device/memory.hpp"
#include "nn/units.plan.hpp"

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
                              Heartbeat* heartbeat, std::int64_t piece_elements)
    : storage_(storage),
      mesh_(mesh),
      own_(share_of(mesh.rank())),
      heartbeat_(heartbeat),
      piece_elements_(piece_elements) {
  for (int r = 0; receives() && r < mesh.world().size(); ++r) shares_.push_back(share_of(r));
}

template <class T>
std::vector<typename WholeTensors<T>::Piece> WholeTensors<T>::pieces_of(const RankShare& share, const Unit& unit,
                                                                        std::size_t parameter) {
  std::vector<Piece> pieces;
  const std::size_t u = index_of(share, unit);
  if (u == share.units.size()) return pieces;
  const LocalUnit& local = share.units[u];
  const std::int64_t state = local.state().begin;
  for (const Range& counted : counted_ranges(local))
    for (const Run& run : runs_of(local, counted))
      if (run.piece->parameter == parameter) pieces.push_back({run.local - state, run.global, run.count});
  return pieces;
}

template <class T>
std::vector<typename WholeTensors<T>::Piece> WholeTensors<T>::pieces_within(const std::vector<Piece>& pieces,
                                                                            const Range& elements) {
  std::vector<Piece> within;
  for (const Piece& piece : pieces) {
    const std::int64_t begin = std::max(piece.global, elements.begin),
                       end = std::min(piece.global + piece.count, elements.end);
    if (begin < end) within.push_back({piece.state_begin + begin - piece.global, begin, end - begin});
  }
  return within;
}

// The pieces' values, one behind the other: what spans them comes to the host in one copy.
template <class T>
std::string WholeTensors<T>::packed(const std::vector<Piece>& pieces, std::size_t unit, TensorSource source,
                                    Stream& stream) const {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0, count = 0;
  for (const Piece& piece : pieces) {
    begin = std::min(begin, piece.state_begin);
    end = std::max(end, piece.state_begin + piece.count);
    count += piece.count;
  }
  std::string text(to_size(count) * sizeof(A), '\0');
  if (count == 0) return text;
  const RankUnit<T>& s = storage_.unit(unit);
  std::vector<A> span(to_size(end - begin));
  const auto read = [&]<class V>(const V* from, std::vector<V>& to) {
    copy_to_host(stream, to.data(), from + begin, to.size() * sizeof(V));
    stream.synchronize();
  };
  const bool gradients = source == TensorSource::gradients;
  if (gradients ? s.rounds_gradients() : s.master_is_copy) {
    std::vector<T> values(span.size());
    read((gradients ? s.narrow_gradient : s.copy).data, values);
    for (std::size_t i = 0; i < values.size(); ++i) span[i] = A(values[i]);
  } else {
    read((gradients ? s.gradient : s.master).data, span);
  }
  char* to = text.data();
  for (const Piece& piece : pieces) {
    const std::size_t bytes = to_size(piece.count) * sizeof(A);
    std::memcpy(to, span.data() + (piece.state_begin - begin), bytes);
    to += bytes;
  }
  return text;
}

template <class T>
std::vector<typename WholeTensors<T>::A> WholeTensors<T>::collect(const Unit& unit, std::size_t parameter,
                                                                  TensorSource source, Stream& stream) {
  const std::int64_t elements = unit.parameters[parameter].elements();
  const auto own = pieces_of(own_, unit, parameter);
  const std::size_t own_unit = index_of(own_, unit);
  std::vector<std::vector<Piece>> all;
  for (const RankShare& share : shares_) all.push_back(pieces_of(share, unit, parameter));
  std::vector<A> whole(receives() ? to_size(elements) : 0);
  std::int64_t arrived = 0;
  for (std::int64_t begin = 0; begin < elements; begin += piece_elements_) {
    const Range range{begin, std::min(begin + piece_elements_, elements)};
    std::size_t rank = 0;
    const auto place = [&](const std::string& text) {
      const char* from = text.data();
      for (const Piece& piece : pieces_within(all[rank++], range)) {
        const std::size_t bytes = to_size(piece.count) * sizeof(A);
        require(from + bytes <= text.data() + text.size(), "a rank sends less of a tensor than it holds");
        std::memcpy(whole.data() + piece.global, from, bytes);
        from += bytes;
        arrived += piece.count;
      }
    };
    mesh_.world().collect_host(packed(pieces_within(own, range), own_unit, source, stream), 0, place);
    if (heartbeat_) heartbeat_->beat();
  }
  require(!receives() || arrived == elements, "the ranks together don't hold every element of a tensor once");
  return whole;
}

template <class T>
WholeWeights<T>::WholeWeights(const ModelSpec& spec, WholeTensors<T>& tensors, Stream& stream) {
  const std::vector<LocalUnit> whole = whole_units(spec);
  for (const Unit& unit : parameter_units(spec)) {
    const LocalUnit& local = whole[units.size()];
    std::vector<T> values(tensors.receives() ? to_size(local.elements) : 0);
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      const auto tensor = tensors.collect(unit, i, TensorSource::parameters, stream);
      if (tensor.empty()) continue;
      for (const Run& run : runs_of(local, {0, local.elements}))
        if (run.piece->parameter == i)
          for (std::int64_t k = 0; k < run.count; ++k)
            values[to_size(run.local + k)] = T(tensor[to_size(run.global + k)]);
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
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
