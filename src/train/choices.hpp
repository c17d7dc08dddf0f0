#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "data/choice_task.hpp"
#include "train/scoring.hpp"

namespace forge {

// A task's shares of questions whose right choice has the largest log-likelihood (accuracy), and the largest
// log-likelihood per character (normalised), as in lm-eval (acc, acc_norm); of equal ones the first is chosen.
struct TaskResult {
  std::int64_t questions = 0;
  double accuracy = 0, normalised = 0;
};

// Scores a task with the ranks' model; all ranks call it together. The result counts on rank 0 of the world. `stop`, if
// any, is asked now and then, and answers alike on all ranks; if it stops, there is no result.
template <class T>
std::optional<TaskResult> evaluate_task(Scorer<T>& scorer, const ChoiceTask& task, std::int64_t sequence_tokens,
                                        const std::function<bool()>& stop);

}  // namespace forge
