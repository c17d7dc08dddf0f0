#include "optim/optimizer.hpp"

#include "nn/context.hpp"
#include "optim/rule.hpp"

namespace forge {

// Padding holds zeros; it belongs to the run before it, where an update leaves it zero.
template <class T>
Optimizer<T>::Optimizer(const ParameterStorage<T>& storage, const OptimizerDeck& deck, const UpdateTools<T>& tools)
    : deck_(deck),
      storage_(storage),
      tools_(tools),
      heads_(storage, tools.spec, deck.qk_clip, {tools.peaks, tools.head_factors}) {
  if (row_of(deck.name).factored()) return;
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const LocalUnit& unit = storage.local(u);
    if (unit.frozen) continue;
    const bool alone = rounds_state(storage.unit(u));
    for (std::size_t p = 0, next = 0; p < unit.pieces.size(); p = next) {
      do ++next;
      while (next < unit.pieces.size() && !alone && unit.rule_of(next) == unit.rule_of(p));
      const Range here = intersection({unit.pieces[p].offset, unit.range_of(next - 1).end}, unit.state());
      if (!here.empty() && !unit.rule_of(p).whole)
        runs_.push_back(run_of(storage.unit(u), here, unit.rule_of(p), tools.seed));
    }
  }
  if (!tools.matrices.rounds.empty()) matrices_ = std::make_unique<MatrixUpdate<T>>(storage, deck, tools);
}

template <class T>
void Optimizer<T>::update_elements(Stream& stream, const Update& update) const {
  for (const UpdateArgs<T>& run : runs_) update_run<T>(stream, deck_, update.of(run.rule), run);
}

template <class T>
void Optimizer<T>::update_factored(Stream& stream, std::size_t u, const Update& update) const {
  const FactoredUnit& plan = tools_.factored.units[u];
  const RankUnit<T>& unit = storage_.unit(u);
  Communicator& group = tools_.mesh.matrices(unit.local.is_experts());
  const Frame frame(tools_.arena);
  FactoredBuffers buffers;
  allocate(tools_.arena, tools_.buffers, Category::workspace, buffers, plan);
  const FactoredArgs<T> run{unit, plan, buffers,
                            tools_.line_moments.slice(plan.first_moment, plan.first_moment + plan.moments)};
  add_squares(stream, run);
  group.all_reduce(stream, buffers.sums);
  update_moments(stream, update, run);
  add_updates(stream, update, run);
  group.all_reduce(stream, buffers.updates);
  apply_updates(stream, update, run);
}

FORGE_INSTANTIATE_CLASS(Optimizer);

}  // namespace forge
