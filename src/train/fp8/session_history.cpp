#include "kernels/fp8/fp8_history_rows.hpp"
#include "train/session.hpp"

namespace forge {

// The largest magnitudes are those of every rank that sees some of a tensor: of its rows (dp, cp, and tp's parts of the
// sequence), or of its columns (tp); ranks that have nothing of it hold 0.
template <class T>
void Session<T>::finish_sums() {
  const AmaxHistory& history = run_.amax_history;
  if (!history.step.empty()) {
    mesh_.scalars().all_reduce_max(stream_, history.step);
    fp8_judge_history(stream_, history.step, scalars_);
  }
  finish_scalars(stream_, scalars_, setup_.deck.optimizer.clip_norm);
}

template <class T>
void Session<T>::move_history() {
  const AmaxHistory& history = run_.amax_history;
  if (!history.step.empty()) fp8_move_history(stream_, scalars_, history.step, history.entries, history.given);
}

template <class T>
void Session<T>::read_history() {
  const AmaxHistory& history = run_.amax_history;
  if (!history.given.empty()) fp8_largest_of_history(stream_, history.entries, history.given);
}

#define FORGE_INSTANTIATE(T)                \
  template void Session<T>::finish_sums();  \
  template void Session<T>::move_history(); \
  template void Session<T>::read_history();
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge
