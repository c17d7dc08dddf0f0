#include "optim/adamw.hpp"

#include <cmath>

namespace forge {

template <class T>
Adamw<T>::Adamw(const ParameterStorage<T>& storage, const OptimizerDeck& deck) : storage_(storage), deck_(deck) {
  // Padding holds zeros; it belongs to the segment before it, where an update leaves it zero.
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const LocalUnit& unit = storage.local(u);
    const Range state = storage.unit(u).state;
    std::vector<Segment> of_unit;
    for (const LocalPiece& piece : unit.pieces) {
      const bool decays = unit.parameters[piece.parameter].decays();
      if (!of_unit.empty() && of_unit.back().decays == decays) continue;
      if (!of_unit.empty()) of_unit.back().end = piece.offset;
      of_unit.push_back({u, piece.offset, unit.elements, decays});
    }
    for (Segment segment : of_unit) {
      const Range here = intersection({segment.begin, segment.end}, state);
      if (here.empty()) continue;
      segment.begin = here.begin - state.begin;
      segment.end = here.end - state.begin;
      segments_.push_back(segment);
    }
  }
}

template <class T>
template <class M>
void Adamw<T>::step_segment(Stream& stream, const Segment& segment, AdamwStep how,
                            View<const StepScalars, 1> scalars) const {
  using S = acc_t<T>;
  const UnitStorage<T>& u = storage_.unit(segment.unit);
  const std::int64_t b = segment.begin, e = segment.end;
  const Array<std::int64_t, 1> all{{u.master.size()}};
  const auto moment = [&](std::size_t i) { return View<M, 1>(static_cast<M*>(u.optimizer[i].data), all).slice(b, e); };
  const auto copy = std::is_same_v<S, T> ? View<T, 1>() : u.copy.slice(b, e);
  adamw<S, M, T>(stream, how, scalars, u.gradient.slice(b, e), u.master.slice(b, e), moment(0), moment(1), copy);
}

template <class T>
void Adamw<T>::step(Stream& stream, std::int64_t update, double rate, View<const StepScalars, 1> scalars) const {
  const double t = static_cast<double>(update);
  for (const auto& segment : segments_) {
    const AdamwStep how{rate,
                        deck_.beta1,
                        deck_.beta2,
                        deck_.epsilon,
                        segment.decays ? deck_.weight_decay : 0,
                        1 - std::pow(deck_.beta1, t),
                        1 - std::pow(deck_.beta2, t)};
    if constexpr (!std::is_same_v<T, double>)
      if (storage_.unit(segment.unit).optimizer[0].declared.type == DType::bf16) {
        step_segment<bf16>(stream, segment, how, scalars);
        continue;
      }
    step_segment<acc_t<T>>(stream, segment, how, scalars);
  }
}

template class Adamw<double>;
template class Adamw<float>;
template class Adamw<bf16>;

}  // namespace forge
