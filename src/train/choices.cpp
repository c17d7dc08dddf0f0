#include "train/choices.hpp"

#include <numeric>

namespace forge {

namespace {

// The choices with the largest log-likelihood, and with the largest one for each character.
std::array<std::size_t, 2> chosen(const ChoiceQuestion& question, const PieceScores* scores) {
  std::array<std::size_t, 2> best{};
  std::array<double, 2> largest{};
  for (std::size_t i = 0; i < question.choices.size(); ++i) {
    const std::vector<double>& own = scores[i].log_likelihoods;
    const double sum = std::accumulate(own.begin(), own.end(), 0.0);
    const std::array<double, 2> measures{sum, sum / question.choices[i].characters};
    for (std::size_t m = 0; m < measures.size(); ++m)
      if (i == 0 || measures[m] > largest[m]) largest[m] = measures[m], best[m] = i;
  }
  return best;
}

}  // namespace

template <class T>
std::optional<TaskResult> evaluate_task(Scorer<T>& scorer, const ChoiceTask& task, std::int64_t sequence_tokens,
                                        const std::function<bool()>& stop) {
  constexpr std::int64_t microbatches = 16;  // between two questions to `stop`
  const std::int64_t most = microbatches * scorer.tokens_at_once();
  std::array<std::int64_t, 2> right{};
  const auto count = task.questions.size();
  for (std::size_t begin = 0, end = 0; begin < count; begin = end) {
    if (begin > 0 && stop && stop()) return {};
    std::vector<ScoredPiece> pieces;
    std::int64_t inputs = 0;
    for (; end < count && inputs < most; ++end)
      for (const TaskChoice& choice : task.questions[end].choices) {
        pieces.push_back({choice.tokens, choice.labels});
        inputs += scorer.alone() ? sequence_tokens : pieces.back().inputs();
      }
    const std::vector<PieceScores> scores = scorer.score(pieces);
    for (std::size_t q = begin, at = 0; q < end && !scores.empty(); ++q) {
      const ChoiceQuestion& question = task.questions[q];
      const auto best = chosen(question, scores.data() + at);
      for (std::size_t m = 0; m < right.size(); ++m) right[m] += best[m] == question.answer;
      at += question.choices.size();
    }
  }
  const auto all = static_cast<double>(count);
  return TaskResult{static_cast<std::int64_t>(count), static_cast<double>(right[0]) / all,
                    static_cast<double>(right[1]) / all};
}

FORGE_INSTANTIATE_FUNCTION(evaluate_task);

}  // namespace forge
