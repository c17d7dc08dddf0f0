#include "checkpoint/storage_state.hpp"

#include "checkpoint/tensor_parts.hpp"
#include "core/error.hpp"

namespace forge {

namespace {

// Columns of a strip: an eighth, a quarter or a half of all, so that ranks which cut columns find theirs together.
std::int64_t strip_of(const Parameter& p) {
  if (p.split.empty() || p.split.front().dim != 1) return 0;
  for (const std::int64_t parts : {8, 4, 2})
    if (p.shape[1] % parts == 0) return p.shape[1] / parts;
  return 0;
}

}  // namespace

Box TensorPlace::box(const Box& of_parameter) const {
  if (expert < 0) return of_parameter;
  Box box = of_parameter;
  box.offset.insert(box.offset.begin(), expert);
  box.extent.insert(box.extent.begin(), 1);
  return box;
}

TensorPlace place_of(const Parameter& p, std::int64_t experts) {
  TensorPlace place{p.name, p.shape, p.expert, strip_of(p)};
  if (p.expert < 0) return place;
  const std::string number = std::to_string(p.expert) + ".", word = "experts.";
  const std::size_t at = p.name.find(word + number);
  require(at != std::string::npos, "an expert's parameter has another name than experts.<number>.<matrix>");
  place.name.erase(at + word.size(), number.size());
  place.shape.insert(place.shape.begin(), experts);
  return place;
}

StatePlace place_of_state(const StateSpec& state, const Parameter& p, std::int64_t experts, const Range& rows) {
  const TensorPlace tensor = place_of(p, experts);
  StatePlace place{"", tensor.shape, {}};
  bool apart = rows.size() < p.shape[0];
  const auto set_square = [&](std::int64_t side) {
    place.shape[place.shape.size() - 2] = place.shape.back() = side;
    place.box = {{0, 0}, {side, side}};
  };
  switch (state.shape) {
    case StateShape::whole:
      place.box = {Extents(p.shape.size(), 0), p.shape};
      place.box.offset[0] = rows.begin;
      place.box.extent[0] = rows.size();
      apart = false;
      break;
    case StateShape::rows:
      place.shape.pop_back();
      place.box = {{rows.begin}, {rows.size()}};
      apart = false;
      break;
    case StateShape::columns:
      place.shape.erase(place.shape.end() - 2);
      place.box = {{0}, {p.shape[1]}};
      break;
    case StateShape::square_of_rows:
      set_square(rows.size());
      break;
    case StateShape::square_of_columns:
      set_square(p.shape[1]);
      break;
  }
  const std::string part = apart ? ".rows_" + std::to_string(rows.begin) : "";
  place.name = std::string(state.name) + "/" + tensor.name + part + state.suffix;
  place.box = tensor.box(place.box);
  return place;
}

std::vector<Range> written_ranges(const LocalUnit& unit) {
  const Range shard = unit.shard();
  // Copies of a shard write a part each.
  const Range part_of_copy = flat_shard(shard.size(), unit.zero.replicas, unit.zero.replica, unit_alignment);
  const Range mine{shard.begin + part_of_copy.begin, shard.begin + part_of_copy.end};
  std::vector<Range> written;
  for (const Range& owned : owned_ranges(unit))
    if (const Range part = intersection(owned, mine); !part.empty()) written.push_back(part);
  return written;
}

template <class T>
std::vector<StateTensor> state_of(const ParameterStorage<T>& storage, std::int64_t experts, StateUse use,
                                  StateParts parts) {
  StateTensors tensors;
  const auto add = [&](const StateBuffer& kind, const TensorPlace& place, const Box& box, std::byte* data) {
    tensors.add({std::string(kind.name) + "/" + place.name, kind.type, place.shape, place.strip, {}},
                {place.box(box), data});
  };
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const LocalUnit& unit = storage.local(u);
    const RankUnit<T>& s = storage.unit(u);
    const StateBuffer parameters{"parameters", s.master_is_copy ? dtype_of<T> : dtype_of<acc_t<T>>},
        trained{"trained_parameters", parameters.type};
    const auto ranges = use == StateUse::write ? written_ranges(unit) : std::vector<Range>{s.state};
    for (const LocalPiece& piece : unit.pieces) {
      if (use == StateUse::write && !piece.owned) continue;
      const TensorPlace place = place_of(unit.parameters[piece.parameter], experts);
      for (const Range& range : ranges) {
        const Range here = intersection(piece.range(), range);
        if (here.empty()) continue;
        std::int64_t at = here.begin - s.state.begin;
        for (const Box& box : boxes_within(piece.box, {here.begin - piece.offset, here.end - piece.offset})) {
          const auto weights = [&](const auto& from) { return reinterpret_cast<std::byte*>(from.data + at); };
          const bool averages = parts.optimizer && s.averages();
          if (parts.parameters)
            add(parameters, place, box,
                averages           ? weights(s.gradient)
                : s.master_is_copy ? weights(s.copy)
                                   : weights(s.master));
          if (parts.parameters && averages) add(trained, place, box, weights(s.master));
          if (parts.optimizer)
            for (const auto& buffer : s.optimizer)
              if (buffer.has(s.state.begin + at)) add(buffer.declared, place, box, buffer.at(s.state.begin + at));
          at += box.size();
        }
      }
    }
  }
  return tensors.take();
}

FORGE_INSTANTIATE_FUNCTION(state_of);

}  // namespace forge
