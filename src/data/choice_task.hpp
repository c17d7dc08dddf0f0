#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// A choice behind its context: the last `labels` tokens are the choice's.
struct TaskChoice {
  std::vector<std::int32_t> tokens;
  std::int64_t labels = 0;
  double characters = 1;  // of its text
};

struct ChoiceQuestion {
  std::vector<TaskChoice> choices;
  std::size_t answer = 0;  // the right one
};

// A multiple-choice task.
struct ChoiceTask {
  std::string name;
  std::vector<ChoiceQuestion> questions;
};

// Reads lines of JSON as jobscripts/prepare_tasks.py writes them:
//   {"context": [ids], "choices": [[ids], …], "characters": [n, …], "answer": i}
// Of a context that is too long for T inputs the last tokens count. BadInput names file and line: no such line, an id
// outside of the vocabulary, an empty context or choice, a choice of more than T tokens, fewer than two choices.
ChoiceTask read_choice_task(const std::string& path, std::int64_t vocabulary, std::int64_t T);

}  // namespace forge
