#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace forge {

// Collects the errors of an input, so that a person sees all of them at once.
class Report {
 public:
  // The text names its place itself, or `where` does: "file:line:column".
  void add(const std::string& text) { problems_.push_back(text); }
  void add(const std::string& where, const std::string& text) { add(where.empty() ? text : where + ": " + text); }
  void append(const Report& other) {
    problems_.insert(problems_.end(), other.problems_.begin(), other.problems_.end());
  }
  // Calls f(); every line of a BadInput that it throws is a problem.
  template <class F>
  void collect(F f) {
    try {
      f();
    } catch (const BadInput& error) {
      std::istringstream lines(error.what());
      for (std::string line; std::getline(lines, line);) problems_.push_back(line);
    }
  }
  bool empty() const { return problems_.empty(); }
  // One problem a line, without their subject.
  std::string lines() const {
    std::string text;
    for (const std::string& problem : problems_) text += (text.empty() ? "" : "\n") + problem;
    return text;
  }

  // One BadInput with a line per problem (the first hundred of them); `subject` names their common subject.
  void throw_if_any(const std::string& subject) const {
    if (problems_.empty()) return;
    if (problems_.size() == 1) throw BadInput(problems_.front());
    std::string text = subject + " has " + std::to_string(problems_.size()) + " errors:";
    for (std::size_t i = 0; i < problems_.size() && i < shown_; ++i) text += "\n  " + problems_[i];
    if (problems_.size() > shown_) text += "\n  and " + std::to_string(problems_.size() - shown_) + " more";
    throw BadInput(text);
  }

 private:
  static constexpr std::size_t shown_ = 100;
  std::vector<std::string> problems_;
};

}  // namespace forge
