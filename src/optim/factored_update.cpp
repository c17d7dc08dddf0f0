#include "optim/factored_update.hpp"

#include "nn/context.hpp"

namespace forge {

template <class T>
void FactoredUpdate<T>::update(Stream& stream, std::size_t u, const Update& update) const {
  const FactoredUnit& plan = tools_.factored.units[u];
  const RankUnit<T>& unit = storage_.unit(u);
  Communicator& group = tools_.mesh.matrices(unit.local.is_experts());
  const Frame frame(tools_.arena);
  FactoredBuffers buffers;
  allocate(tools_.arena, tools_.buffers, Category::workspace, buffers, plan);
  const FactoredRun<T> run{unit, plan, buffers,
                           tools_.line_moments.slice(plan.first_moment, plan.first_moment + plan.moments)};
  add_squares(stream, run);
  group.all_reduce(stream, buffers.sums);
  update_moments(stream, update, run);
  add_updates(stream, update, run);
  group.all_reduce(stream, buffers.updates);
  apply_updates(stream, update, run);
}

FORGE_INSTANTIATE_CLASS(FactoredUpdate);

}  // namespace forge
