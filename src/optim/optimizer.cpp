#include "optim/optimizer.hpp"

#include "core/to_size.hpp"
#include "optim/rule.hpp"

namespace forge {

namespace {

// The elements from begin to end of a unit's state.
template <class T>
UpdateRun<T> run_of(const RankUnit<T>& s, std::int64_t begin, std::int64_t end, bool decays) {
  UpdateRun<T> run{s.gradient.slice(begin, end), s.master.slice(begin, end), {}, {}, decays};
  if constexpr (!std::is_same_v<acc_t<T>, T>) run.copy = s.copy.slice(begin, end);
  for (const auto& buffer : s.optimizer) {
    const DType type = buffer.declared.type;
    run.state.push_back({type, static_cast<std::byte*>(buffer.data) + to_size(begin) * size_of(type)});
  }
  return run;
}

}  // namespace

// Padding holds zeros; it belongs to the run before it, where an update leaves it zero.
template <class T>
Optimizer<T>::Optimizer(const ParameterStorage<T>& storage, const OptimizerDeck& deck) : deck_(deck) {
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const LocalUnit& unit = storage.local(u);
    const Range& state = storage.unit(u).state;
    const auto decays = [&](std::size_t p) { return unit.parameters[unit.pieces[p].parameter].decays(); };
    for (std::size_t p = 0, next = 0; p < unit.pieces.size(); p = next) {
      while (next < unit.pieces.size() && decays(next) == decays(p)) ++next;
      const std::int64_t end = next < unit.pieces.size() ? unit.pieces[next].offset : unit.elements;
      const Range here = intersection({unit.pieces[p].offset, end}, state);
      if (!here.empty())
        runs_.push_back(run_of(storage.unit(u), here.begin - state.begin, here.end - state.begin, decays(p)));
    }
  }
}

template <class T>
void Optimizer<T>::step(Stream& stream, std::int64_t update, double rate, View<const StepScalars, 1> scalars) const {
  for (const UpdateRun<T>& run : runs_) update_run<T>(stream, deck_, {update, rate, scalars}, run);
}

template class Optimizer<double>;
template class Optimizer<float>;
template class Optimizer<bf16>;

}  // namespace forge
