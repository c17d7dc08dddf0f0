#include "data/choice_task.hpp"

#include <algorithm>
#include <sstream>

#include "config/deck.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "hf/json_input.hpp"

namespace forge {

namespace {

using nlohmann::json;

constexpr std::size_t most_task_bytes = std::size_t{256} << 20;

// A line's members, or why it has none.
class TaskLine {
 public:
  TaskLine(const std::string& text, std::string place, std::int64_t vocabulary)
      : place_(std::move(place)), vocabulary_(vocabulary), line_(parse_json(text, place_, {})) {}

  [[noreturn]] void refuse(const std::string& why) const { throw BadInput(place_ + ": " + why); }
  const json& list(const char* name) const {
    const auto found = line_.find(name);
    if (found == line_.end() || !found->is_array()) refuse(std::string(name) + " is no list");
    return *found;
  }
  std::vector<std::int32_t> ids(const json& list, const char* name) const {
    if (!list.is_array() || list.empty()) refuse(std::string(name) + " has no ids");
    std::vector<std::int32_t> ids;
    for (const json& id : list) {
      if (!id.is_number_integer() || id < 0 || id >= vocabulary_)
        refuse(std::string(name) + " has " + id.dump() + "; legal: ids from 0 to " + std::to_string(vocabulary_ - 1));
      ids.push_back(id.get<std::int32_t>());
    }
    return ids;
  }
  std::size_t answer(std::size_t choices) const {
    const auto found = line_.find("answer");
    if (found == line_.end() || !found->is_number_integer() || *found < 0 || *found >= choices)
      refuse("answer is no number of a choice, from 0");
    return found->get<std::size_t>();
  }

 private:
  std::string place_;
  std::int64_t vocabulary_;
  json line_;
};

TaskChoice choice_of(const TaskLine& line, const std::vector<std::int32_t>& context, const json& ids,
                     const json& length, std::int64_t T) {
  TaskChoice choice;
  const std::vector<std::int32_t> own = line.ids(ids, "choices");
  choice.labels = std::ssize(own);
  if (choice.labels > T)
    line.refuse("a choice has " + std::to_string(choice.labels) +
                " tokens; legal: at most train.sequence_tokens = " + std::to_string(T));
  if (!length.is_number() || length <= 0) line.refuse("characters has " + length.dump() + "; legal: more than 0");
  choice.characters = length.get<double>();
  const std::int64_t kept = std::min(std::ssize(context), T + 1 - choice.labels);
  choice.tokens.assign(context.end() - kept, context.end());
  choice.tokens.insert(choice.tokens.end(), own.begin(), own.end());
  return choice;
}

ChoiceQuestion question_of(const TaskLine& line, std::int64_t T) {
  const std::vector<std::int32_t> context = line.ids(line.list("context"), "context");
  const json &choices = line.list("choices"), &lengths = line.list("characters");
  if (choices.size() < 2 || lengths.size() != choices.size())
    line.refuse("has " + std::to_string(choices.size()) + " choices and " + std::to_string(lengths.size()) +
                " characters; legal: at least 2, and as many of each");
  ChoiceQuestion question;
  for (std::size_t i = 0; i < choices.size(); ++i)
    question.choices.push_back(choice_of(line, context, choices[i], lengths[i], T));
  question.answer = line.answer(choices.size());
  return question;
}

}  // namespace

ChoiceTask read_choice_task(const std::string& path, std::int64_t vocabulary, std::int64_t T) {
  std::istringstream lines(read_text_file(path, most_task_bytes, "data.tasks:"));
  ChoiceTask task{DataDeck::task_name(path), {}};
  std::string text;
  for (std::int64_t number = 1; std::getline(lines, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    task.questions.push_back(
        question_of(TaskLine(text, "data.tasks: " + path + ", line " + std::to_string(number), vocabulary), T));
  }
  if (task.questions.empty()) throw BadInput("data.tasks: " + path + " has no questions");
  return task;
}

}  // namespace forge
