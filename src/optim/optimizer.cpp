#include "optim/optimizer.hpp"

#include "optim/rule.hpp"

namespace forge {

// Padding holds zeros; it belongs to the run before it, where an update leaves it zero.
template <class T>
Optimizer<T>::Optimizer(const ParameterStorage<T>& storage, const OptimizerDeck& deck, const UpdateTools<T>& tools)
    : deck_(deck), factored_(storage, deck, tools) {
  if (row_of(deck.name).factored()) return;
  const bool whole = row_of(deck.name).whole_matrices;
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const LocalUnit& unit = storage.local(u);
    const Range elements = kept_range(unit, whole ? KeptOf::others : KeptOf::all);
    const auto decays = [&](std::size_t p) { return unit.parameters[unit.pieces[p].parameter].decays(); };
    for (std::size_t p = 0, next = 0; p < unit.pieces.size(); p = next) {
      while (next < unit.pieces.size() && decays(next) == decays(p)) ++next;
      const std::int64_t end = next < unit.pieces.size() ? unit.pieces[next].offset : unit.elements;
      const Range here = intersection({unit.pieces[p].offset, end}, elements);
      if (!here.empty()) runs_.push_back(run_of(storage.unit(u), here, decays(p)));
    }
  }
  if (!tools.matrices.rounds.empty()) matrices_ = std::make_unique<MatrixUpdate<T>>(storage, deck, tools);
}

template <class T>
void Optimizer<T>::update_elements(Stream& stream, const Update& update) const {
  for (const UpdateRun<T>& run : runs_) update_run<T>(stream, deck_, update.of_others(), run);
}

template class Optimizer<double>;
template class Optimizer<float>;
template class Optimizer<bf16>;

}  // namespace forge
