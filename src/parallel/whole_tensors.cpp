#include "parallel/whole_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "nn/units.plan.hpp"

namespace forge {

namespace {

void append_bytes(std::string& text, std::int64_t value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

template <class T>
std::size_t WholeTensors<T>::index_of(const Unit& unit) const {
  std::size_t u = 0;
  while (u < storage_.size() && !(storage_.local(u).kind == unit.kind && storage_.local(u).layer == unit.layer)) ++u;
  return u;
}

template <class T>
std::vector<typename WholeTensors<T>::Piece> WholeTensors<T>::pieces_of(const Unit& unit, std::size_t parameter) const {
  std::vector<Piece> pieces;
  const std::size_t u = index_of(unit);
  if (u == storage_.size()) return pieces;
  const LocalUnit& local = storage_.local(u);
  const std::int64_t state = local.state().begin;
  for (const Range& counted : counted_ranges(local))
    for (const ElementRun& run : runs_of(local, counted))
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

// Where the pieces stand in the tensor, and behind that their values, one behind the other: what spans them comes to
// the host in one copy.
template <class T>
std::string WholeTensors<T>::packed(const std::vector<Piece>& pieces, std::size_t unit, TensorSource source,
                                    Stream& stream) const {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0, count = 0;
  for (const Piece& piece : pieces) {
    begin = std::min(begin, piece.state_begin);
    end = std::max(end, piece.state_begin + piece.count);
    count += piece.count;
  }
  std::string text;
  append_bytes(text, std::ssize(pieces));
  for (const Piece& piece : pieces) {
    append_bytes(text, piece.global);
    append_bytes(text, piece.count);
  }
  if (count == 0) return text;
  const std::size_t head = text.size();
  text.resize(head + to_size(count) * sizeof(A));
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
  char* to = text.data() + head;
  for (const Piece& piece : pieces) {
    const std::size_t bytes = to_size(piece.count) * sizeof(A);
    std::memcpy(to, span.data() + (piece.state_begin - begin), bytes);
    to += bytes;
  }
  return text;
}

// What a rank sends of a tensor's range, put where it belongs. Returns its elements.
template <class T>
std::int64_t WholeTensors<T>::place(const std::string& text, const Range& range, std::vector<A>& whole) {
  const char* from = text.data();
  const auto next = [&] {
    std::int64_t value = 0;
    require(from + sizeof value <= text.data() + text.size(), "a rank sends less of a tensor than it says");
    std::memcpy(&value, from, sizeof value);
    from += sizeof value;
    return value;
  };
  std::vector<Range> pieces(to_size(next()));
  for (Range& piece : pieces) {
    piece.begin = next();
    piece.end = piece.begin + next();
  }
  std::int64_t arrived = 0;
  for (const Range& piece : pieces) {
    const std::size_t bytes = to_size(piece.size()) * sizeof(A);
    require(piece.begin >= range.begin && piece.end <= range.end && from + bytes <= text.data() + text.size(),
            "a rank sends another part of a tensor than it says");
    std::memcpy(whole.data() + piece.begin, from, bytes);
    from += bytes;
    arrived += piece.size();
  }
  return arrived;
}

template <class T>
std::vector<typename WholeTensors<T>::A> WholeTensors<T>::collect(const Unit& unit, std::size_t parameter,
                                                                  TensorSource source, Stream& stream) {
  const std::int64_t elements = unit.parameters[parameter].elements();
  const auto own = pieces_of(unit, parameter);
  const std::size_t own_unit = index_of(unit);
  std::vector<A> whole(receives() ? to_size(elements) : 0);
  std::int64_t arrived = 0;
  for (std::int64_t begin = 0; begin < elements; begin += piece_elements_) {
    const Range range{begin, std::min(begin + piece_elements_, elements)};
    if (pause_) pause_();
    mesh_.world().collect_host(packed(pieces_within(own, range), own_unit, source, stream), 0,
                               [&](const std::string& text) { arrived += place(text, range, whole); });
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
      for (const ElementRun& run : runs_of(local, {0, local.elements}))
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

FORGE_INSTANTIATE_CLASS(WholeTensors);
FORGE_INSTANTIATE_CLASS(WholeWeights);

}  // namespace forge
